import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;

/**
 * Several client libraries in one process, because starting Java is what costs time: each version, and each header type of it, is a world
 * with classes of its own.
 *
 * java Worlds NAME=TYPE=CLASSES:JARS_FOLDER …      TYPE: JSON or ROCKETMQ (the binary header)
 *
 * A line of standard input is "NAME JOB", and goes to Peer of that world; what its jobs say are the lines of standard output.
 */
public final class Worlds {
    private Worlds() {
    }

    public static void main(final String[] arguments) throws Exception {
        PrintStream output = System.out;
        // Whatever a library prints is no answer.
        System.setOut(System.err);
        Map<String, Consumer<String>> worlds = new HashMap<>();
        for (String argument : arguments) {
            String[] parts = argument.split("=", 3);
            Consumer<String> say = line -> {
                synchronized (output) {
                    output.println(line);
                    output.flush();
                }
            };
            worlds.put(parts[0], world(parts[0], parts[1], parts[2].split(File.pathSeparator), say));
        }
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            int blank = line.indexOf(' ');
            worlds.get(line.substring(0, blank)).accept(line.substring(blank + 1));
        }
        // Consumers that are still there are dropped, as by a crash.
        Runtime.getRuntime().halt(0);
    }

    @SuppressWarnings("unchecked")
    private static Consumer<String> world(final String name, final String type, final String[] folders, final Consumer<String> say) throws Exception {
        List<URL> urls = new ArrayList<>();
        for (String folder : folders) {
            urls.add(new File(folder).toURI().toURL());
            File[] files = new File(folder).listFiles((where, file) -> file.endsWith(".jar"));
            for (File file : files == null ? new File[0] : files) {
                urls.add(file.toURI().toURL());
            }
        }
        // Open as long as the process lives.
        @SuppressWarnings("resource")
        ClassLoader loader = new URLClassLoader(name, urls.toArray(new URL[0]), ClassLoader.getPlatformClassLoader());
        Thread.currentThread().setContextClassLoader(loader);
        // The class reads it once, when it is made.
        System.setProperty("rocketmq.serialize.type", type);
        Class.forName("org.apache.rocketmq.remoting.protocol.RemotingCommand", true, loader);
        Class<?> peer = Class.forName("Peer", true, loader);
        return (Consumer<String>) peer.getConstructor(String.class, Consumer.class).newInstance(name, say);
    }
}
