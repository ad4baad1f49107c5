import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The jobs of tests/interop/rocketmq_jobs.py, done by the Java client that this is compiled beside.
 */
public final class Peer implements Consumer<String> {
    private static final AtomicInteger NUMBERS = new AtomicInteger();

    private final String world;
    private final Consumer<String> output;
    private final Map<String, DefaultMQProducer> producers = new ConcurrentHashMap<>();
    private final Map<String, DefaultMQPushConsumer> pushed = new ConcurrentHashMap<>();
    private final Map<String, DefaultLitePullConsumer> pulled = new ConcurrentHashMap<>();

    public Peer(final String world, final Consumer<String> output) {
        this.world = world;
        this.output = output;
    }

    @Override
    public void accept(final String line) {
        JSONObject job = JSON.parseObject(line);
        Thread thread = new Thread(() -> answer(job), world + "-" + job.getString("do"));
        thread.setContextClassLoader(Peer.class.getClassLoader());
        thread.setDaemon(true);
        thread.start();
    }

    private void answer(final JSONObject job) {
        JSONObject answer = new JSONObject();
        answer.put("id", job.get("id"));
        try {
            answer.put("result", done(job));
        } catch (Throwable error) {
            answer.put("error", error.getClass().getSimpleName() + ": " + error.getMessage());
        }
        output.accept(answer.toJSONString());
    }

    private Object done(final JSONObject job) throws Exception {
        switch (job.getString("do")) {
            case "producer":
                return startProducer(job);
            case "send":
                return send(producers.get(job.getString("name")), job);
            case "push":
                return startPush(job);
            case "lite":
                return startLite(job);
            case "query":
                return query(producers.get(job.getString("name")), job);
            case "view":
                return shown(producers.get(job.getString("name")).viewMessage(job.getString("topic"), job.getString("message_id")));
            case "offsets":
                return offsets(producers.get(job.getString("name")), job);
            case "queues":
                return queues(job.getString("name"));
            case "close":
                return close(job.getString("name"));
            default:
                throw new IllegalArgumentException("no such job");
        }
    }

    private static String instance(final JSONObject job) {
        String given = job.getString("instance");
        return given != null ? given : "interop" + NUMBERS.incrementAndGet() + "at" + System.nanoTime();
    }

    private Object startProducer(final JSONObject job) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(job.getString("group"));
        producer.setNamesrvAddr(job.getString("server"));
        producer.setInstanceName(instance(job));
        producer.setSendMsgTimeout(10_000);
        producer.start();
        producers.put(job.getString("name"), producer);
        return "started";
    }

    // -- sending ---------------------------------------------------------------------------------------------------------

    private static Message message(final String topic, final JSONObject given) {
        byte[] body = given.getString("body").getBytes(StandardCharsets.UTF_8);
        if (given.containsKey("size")) {
            byte[] large = new byte[given.getIntValue("size")];
            Arrays.fill(large, (byte) '.');
            System.arraycopy(body, 0, large, 0, body.length);
            body = large;
        }
        Message message = new Message(topic, body);
        if (given.containsKey("tags")) {
            message.setTags(given.getString("tags"));
        }
        if (given.containsKey("keys")) {
            message.setKeys(given.getString("keys"));
        }
        if (given.containsKey("flag")) {
            message.setFlag(given.getIntValue("flag"));
        }
        if (given.containsKey("delay")) {
            message.setDelayTimeLevel(given.getIntValue("delay"));
        }
        JSONObject properties = given.getJSONObject("properties");
        for (String name : properties == null ? List.<String>of() : properties.keySet()) {
            MessageAccessor.putProperty(message, name, properties.getString(name));
        }
        return message;
    }

    private static JSONObject shown(final SendResult result) {
        JSONObject shown = new JSONObject();
        shown.put("status", result.getSendStatus().name());
        shown.put("id", result.getMsgId());
        shown.put("offset_id", result.getOffsetMsgId());
        shown.put("queue", result.getMessageQueue().getQueueId());
        shown.put("offset", result.getQueueOffset());
        return shown;
    }

    private static Object send(final DefaultMQProducer producer, final JSONObject job) throws Exception {
        String mode = job.getString("mode");
        JSONArray given = job.getJSONArray("messages");
        List<Message> messages = new ArrayList<>();
        for (int index = 0; index < given.size(); index++) {
            messages.add(message(job.getString("topic"), given.getJSONObject(index)));
        }
        List<Object> results = new ArrayList<>();
        switch (mode) {
            case "sync":
                for (Message each : messages) {
                    results.add(shown(producer.send(each)));
                }
                return results;
            case "oneway":
                for (Message each : messages) {
                    producer.sendOneway(each);
                }
                return results;
            case "ordered":
                for (int index = 0; index < messages.size(); index++) {
                    String shard = given.getJSONObject(index).getString("shard");
                    results.add(shown(producer.send(messages.get(index), new SelectMessageQueueByHash(), shard)));
                }
                return results;
            case "batch":
                results.add(shown(producer.send(messages)));
                return results;
            case "async":
                return sendAsync(producer, messages);
            default:
                throw new IllegalArgumentException("no such mode");
        }
    }

    private static Object sendAsync(final DefaultMQProducer producer, final List<Message> messages) throws Exception {
        Object[] results = new Object[messages.size()];
        CountDownLatch left = new CountDownLatch(results.length);
        for (int index = 0; index < results.length; index++) {
            int at = index;
            producer.send(messages.get(index), new SendCallback() {
                @Override
                public void onSuccess(final SendResult result) {
                    results[at] = shown(result);
                    left.countDown();
                }

                @Override
                public void onException(final Throwable error) {
                    results[at] = String.valueOf(error);
                    left.countDown();
                }
            });
        }
        if (!left.await(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException(left.getCount() + " were never answered");
        }
        return Arrays.asList(results);
    }

    // -- consuming -------------------------------------------------------------------------------------------------------

    private static JSONObject shown(final MessageExt message) {
        JSONObject shown = new JSONObject();
        byte[] body = message.getBody();
        shown.put("size", body.length);
        shown.put("body", new String(body, 0, Math.min(body.length, 200), StandardCharsets.UTF_8));
        shown.put("topic", message.getTopic());
        shown.put("tags", message.getTags());
        shown.put("keys", message.getKeys());
        shown.put("flag", message.getFlag());
        shown.put("message_id", message.getMsgId());
        shown.put("queue", message.getQueueId());
        shown.put("offset", message.getQueueOffset());
        shown.put("reconsumed", message.getReconsumeTimes());
        shown.put("born", message.getBornTimestamp());
        shown.put("stored", message.getStoreTimestamp());
        shown.put("properties", new HashMap<>(message.getProperties()));
        return shown;
    }

    private void tell(final String name, final List<MessageExt> messages) {
        for (MessageExt each : messages) {
            JSONObject event = shown(each);
            event.put("event", "message");
            event.put("name", name);
            event.put("at", System.currentTimeMillis());
            output.accept(event.toJSONString());
        }
    }

    /** The enumeration moved to another package in version 5. */
    private static void setModel(final DefaultMQPushConsumer consumer, final String model) throws Exception {
        for (java.lang.reflect.Method method : DefaultMQPushConsumer.class.getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                for (Object each : method.getParameterTypes()[0].getEnumConstants()) {
                    if (((Enum<?>) each).name().equals(model.toUpperCase(Locale.ROOT))) {
                        method.invoke(consumer, each);
                    }
                }
            }
        }
    }

    private Object startPush(final JSONObject job) throws Exception {
        String name = job.getString("name");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(job.getString("group"));
        consumer.setNamesrvAddr(job.getString("server"));
        consumer.setInstanceName(instance(job));
        consumer.setConsumeFromWhere("last".equals(job.getString("from")) ? ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET : ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        setModel(consumer, job.getString("model"));
        consumer.setMaxReconsumeTimes(job.getIntValue("reconsume_max"));
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        consumer.setPersistConsumerOffsetInterval(1000);
        consumer.subscribe(job.getString("topic"), job.getString("expression"));
        int failures = job.getIntValue("failures");
        int level = job.getIntValue("level");
        if (job.getBooleanValue("orderly")) {
            consumer.setSuspendCurrentQueueTimeMillis(100);
            Map<String, Integer> failed = new ConcurrentHashMap<>();
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                tell(name, messages);
                boolean fails = failed.merge(messages.get(0).getMsgId(), 1, Integer::sum) <= failures;
                return fails ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                tell(name, messages);
                context.setDelayLevelWhenNextConsume(level);
                boolean fails = messages.get(0).getReconsumeTimes() < failures;
                return fails ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        pushed.put(name, consumer);
        consumer.start();
        return "started";
    }

    private Object startLite(final JSONObject job) throws Exception {
        String name = job.getString("name");
        String topic = job.getString("topic");
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(job.getString("group"));
        consumer.setNamesrvAddr(job.getString("server"));
        consumer.setInstanceName(instance(job));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommitIntervalMillis(1000);
        boolean assigned = job.getBooleanValue("assign");
        if (!assigned) {
            consumer.subscribe(topic, job.getString("expression"));
        }
        consumer.start();
        if (assigned) {
            Collection<MessageQueue> queues = consumer.fetchMessageQueues(topic);
            consumer.assign(queues);
            for (MessageQueue each : queues) {
                consumer.seekToBegin(each);
            }
        }
        pulled.put(name, consumer);
        Thread thread = new Thread(() -> {
            while (pulled.containsKey(name)) {
                tell(name, consumer.poll(200));
            }
        });
        thread.setContextClassLoader(Peer.class.getClassLoader());
        thread.setDaemon(true);
        thread.start();
        return "started";
    }

    // -- looking ---------------------------------------------------------------------------------------------------------

    private static Object query(final DefaultMQProducer producer, final JSONObject job) throws Exception {
        long now = System.currentTimeMillis();
        QueryResult result = producer.queryMessage(job.getString("topic"), job.getString("key"), 32, now - 3_600_000, now + 60_000);
        List<Object> found = new ArrayList<>();
        for (MessageExt each : result.getMessageList()) {
            found.add(shown(each));
        }
        return found;
    }

    private static Object offsets(final DefaultMQProducer producer, final JSONObject job) throws Exception {
        List<Object> found = new ArrayList<>();
        for (MessageQueue queue : new TreeSet<>(producer.fetchPublishMessageQueues(job.getString("topic")))) {
            JSONObject shown = new JSONObject();
            shown.put("queue", queue.getQueueId());
            shown.put("min", producer.minOffset(queue));
            shown.put("max", producer.maxOffset(queue));
            shown.put("earliest", producer.earliestMsgStoreTime(queue));
            shown.put("at", producer.searchOffset(queue, job.getLongValue("timestamp")));
            found.add(shown);
        }
        return found;
    }

    private Object queues(final String name) {
        List<Integer> found = new ArrayList<>();
        for (MessageQueue queue : pushed.get(name).getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet()) {
            if (!queue.getTopic().startsWith("%RETRY%")) {
                found.add(queue.getQueueId());
            }
        }
        found.sort(null);
        return found;
    }

    private Object close(final String name) {
        DefaultMQProducer producer = producers.remove(name);
        DefaultMQPushConsumer push = pushed.remove(name);
        DefaultLitePullConsumer lite = pulled.remove(name);
        if (producer != null) {
            producer.shutdown();
        }
        if (push != null) {
            push.shutdown();
        }
        if (lite != null) {
            lite.shutdown();
        }
        return producer == null && push == null && lite == null ? "nobody" : "closed";
    }
}
