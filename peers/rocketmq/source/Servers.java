/**
 * A real nameserver and a real broker in one process, because starting Java is what costs time here.
 *
 * java -cp JARS Servers NAMESERVER_CONF BROKER_CONF
 */
public final class Servers {
    private Servers() {
    }

    public static void main(final String[] arguments) throws Exception {
        org.apache.rocketmq.namesrv.NamesrvStartup.main(new String[] {"-c", arguments[0]});
        org.apache.rocketmq.broker.BrokerStartup.main(new String[] {"-c", arguments[1]});
    }
}
