package dev.imago.interop.sdk;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.LitePushConsumer;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;
import org.apache.rocketmq.client.java.message.MessageViewImpl;

/**
 * RocketMQ 5's Java SDK, as its own documentation uses it: with TLS, and any certificate. Prints
 * what became of each story as one line of JSON.
 */
public final class Main {
    private static final long WAIT_SECONDS = 100;
    private static final ClientServiceProvider SDK = ClientServiceProvider.loadService();
    private static ClientConfiguration config;
    private static String topic;

    public static void main(String[] words) throws Exception {
        var builder = ClientConfiguration.newBuilder().setEndpoints(words[1]);
        topic = words[2];
        if (words.length > 3 && words[3].equals("plain")) {
            builder.enableSsl(false);
        } else if (words.length > 3) {
            var password = System.getenv("SDK_PASSWORD");
            builder.setCredentialProvider(new StaticSessionCredentialsProvider(words[3], password));
        }
        config = builder.build();
        Map<String, Object> found =
                switch (words[0]) {
                    case "normal" -> normal();
                    case "fifo" -> fifo();
                    case "delay" -> delay();
                    case "transaction" -> transaction();
                    case "push" -> push();
                    case "stubborn" -> stubborn();
                    case "again" -> again();
                    case "letters" -> letters();
                    case "steady" -> steady();
                    case "send" -> send();
                    case "read" -> others();
                    case "urgent" -> urgent();
                    case "chats" -> chats();
                    default -> throw new IllegalArgumentException(words[0]);
                };
        System.out.println(json(found));
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static Map<String, Object> normal() throws Exception {
        try (Producer producer = producer()) {
            for (int number = 0; number < 10; number++) {
                producer.send(
                        message("n" + number)
                                .setTag(number % 2 == 0 ? "even" : "odd")
                                .setKeys("k" + number)
                                .addProperty("colour", "red")
                                .build());
            }
        }
        Map<String, Object> found = new TreeMap<>();
        try (SimpleConsumer consumer = consumer("-all", FilterExpression.SUB_ALL)) {
            List<MessageView> all = read(consumer, 10);
            MessageView first =
                    all.stream().filter(each -> body(each).equals("n1")).findFirst().orElseThrow();
            found.put("bodies", bodies(all, true));
            found.put("tag", first.getTag().orElse(""));
            found.put("keys", List.copyOf(first.getKeys()));
            found.put("attempt", first.getDeliveryAttempt());
        }
        try (SimpleConsumer consumer = consumer("-odd", new FilterExpression("odd"))) {
            found.put("odd", bodies(read(consumer, 5), true));
        }
        var wanted = new FilterExpression("colour = 'red' AND TAGS = 'odd'", FilterExpressionType.SQL92);
        try (SimpleConsumer consumer = consumer("-sql", wanted)) {
            found.put("sql", bodies(read(consumer, 5), true));
        }
        return found;
    }

    private static Map<String, Object> fifo() throws Exception {
        try (Producer producer = producer()) {
            for (int number = 0; number < 12; number++) {
                producer.send(message("f" + number).setMessageGroup("g" + number % 3).build());
            }
        }
        Map<String, Object> found = new TreeMap<>();
        try (SimpleConsumer consumer = consumer("-ordered", FilterExpression.SUB_ALL)) {
            List<String> all = bodies(read(consumer, 12), false);
            for (int group = 0; group < 3; group++) {
                int wanted = group;
                found.put(
                        "" + group,
                        all.stream()
                                .filter(each -> Integer.parseInt(each.substring(1)) % 3 == wanted)
                                .toList());
            }
        }
        return found;
    }

    private static Map<String, Object> delay() throws Exception {
        Map<String, Object> found = new TreeMap<>();
        try (Producer producer = producer();
                SimpleConsumer consumer = consumer("-late", FilterExpression.SUB_ALL)) {
            long due = System.currentTimeMillis() + 8000;
            producer.send(message("late").setDeliveryTimestamp(due).build());
            var taken = producer.send(message("recalled").setDeliveryTimestamp(due).build());
            producer.recallMessage(topic, taken.getRecallHandle());
            found.put("bodies", bodies(read(consumer, 1), true));
            found.put("early", System.currentTimeMillis() < due - 2000);
            found.put("more", bodies(consumer.receive(1, Duration.ofSeconds(20)), true));
        }
        return found;
    }

    private static Map<String, Object> transaction() throws Exception {
        Map<String, Object> found = new TreeMap<>();
        try (Producer producer =
                SDK.newProducerBuilder()
                        .setClientConfiguration(config)
                        .setTopics(topic)
                        .setTransactionChecker(view -> TransactionResolution.COMMIT)
                        .build()) {
            for (String how : List.of("commit", "rollback", "orphan")) {
                Transaction begun = producer.beginTransaction();
                producer.send(message(how).build(), begun);
                if (how.equals("commit")) {
                    begun.commit();
                } else if (how.equals("rollback")) {
                    begun.rollback();
                }
            }
            try (SimpleConsumer consumer = consumer("-done", FilterExpression.SUB_ALL)) {
                found.put("bodies", bodies(read(consumer, 2), true));
            }
        }
        return found;
    }

    /** A push consumer that fails once with one message. */
    private static Map<String, Object> push() throws Exception {
        try (Producer producer = producer()) {
            for (int number = 0; number < 5; number++) {
                producer.send(message("p" + number).build());
            }
        }
        List<String> seen = pushed("-push", "p0", 6);
        Collections.sort(seen);
        return new TreeMap<>(Map.of("seen", seen));
    }

    /** A push consumer of an ordered group that fails once with the first message. */
    private static Map<String, Object> stubborn() throws Exception {
        try (Producer producer = producer()) {
            for (int number = 0; number < 3; number++) {
                producer.send(message("s" + number).setMessageGroup("one").build());
            }
        }
        return new TreeMap<>(Map.of("seen", pushed("-stubborn", "s0", 4)));
    }

    /** Return what a push consumer has seen, in order; one message fails the first time. */
    private static List<String> pushed(String suffix, String failing, int count) throws Exception {
        var seen = new ConcurrentLinkedQueue<String>();
        var left = new CountDownLatch(count);
        try (PushConsumer ignored =
                pushConsumer(
                        suffix,
                        view -> {
                            boolean first = seen.stream().noneMatch(each -> each.startsWith(failing));
                            seen.add(body(view) + " " + view.getDeliveryAttempt());
                            left.countDown();
                            boolean fails = body(view).equals(failing) && first;
                            return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
                        })) {
            left.await(WAIT_SECONDS, TimeUnit.SECONDS);
        }
        return new ArrayList<>(seen);
    }

    /** What is not acknowledged comes again. */
    private static Map<String, Object> again() throws Exception {
        try (Producer producer = producer()) {
            producer.send(message("twice").build());
        }
        try (SimpleConsumer consumer = consumer("-again", FilterExpression.SUB_ALL)) {
            List<MessageView> first = List.of();
            for (int tries = 0; first.isEmpty() && tries < 20; tries++) {
                first = consumer.receive(1, Duration.ofSeconds(10));
            }
            consumer.changeInvisibleDuration(first.get(0), Duration.ofSeconds(10));
            MessageView second = read(consumer, 1).get(0);
            List<Integer> attempts =
                    List.of(first.get(0).getDeliveryAttempt(), second.getDeliveryAttempt());
            return new TreeMap<>(Map.of("attempts", attempts));
        }
    }

    /** A push consumer that always fails: its group gives the message up. */
    private static Map<String, Object> letters() throws Exception {
        try (Producer producer = producer()) {
            producer.send(message("dead").build());
        }
        String group = topic + "-letters";
        var seen = new ConcurrentLinkedQueue<String>();
        Map<String, Object> found = new TreeMap<>();
        try (PushConsumer ignored =
                        pushConsumer(
                                "-letters",
                                view -> {
                                    seen.add(body(view) + " " + view.getDeliveryAttempt());
                                    return ConsumeResult.FAILURE;
                                });
                SimpleConsumer consumer = deadLetters(group)) {
            found.put("dead", bodies(read(consumer, 1), true));
        }
        found.put("seen", new ArrayList<>(seen));
        return found;
    }

    /** Messages of priorities, the lowest one sent first. */
    private static Map<String, Object> urgent() throws Exception {
        try (Producer producer = producer()) {
            for (int priority = 1; priority < 4; priority++) {
                producer.send(message("u" + priority).setPriority(priority).build());
            }
        }
        try (SimpleConsumer consumer = consumer("-urgent", FilterExpression.SUB_ALL)) {
            return new TreeMap<>(Map.of("bodies", bodies(read(consumer, 3), false)));
        }
    }

    /** A push consumer of two lite topics, which gives one of them up. */
    private static Map<String, Object> chats() throws Exception {
        Map<String, Object> seen = Collections.synchronizedMap(new TreeMap<>());
        var first = new CountDownLatch(3);
        var last = new CountDownLatch(4);
        try (Producer producer = producer();
                LitePushConsumer consumer =
                        SDK.newLitePushConsumerBuilder()
                                .setClientConfiguration(config)
                                .setConsumerGroup(topic + "-chats")
                                .bindTopic(topic)
                                .setMessageListener(
                                        view -> {
                                            String name = view.getLiteTopic().orElse("");
                                            seen.merge(name, Set.of(body(view)), Main::joined);
                                            first.countDown();
                                            last.countDown();
                                            return ConsumeResult.SUCCESS;
                                        })
                                .build()) {
            consumer.subscribeLite("ann");
            consumer.subscribeLite("bob");
            say(producer, "ann a0", "ann a1", "bob b0", "eve e0");
            first.await(WAIT_SECONDS, TimeUnit.SECONDS);
            consumer.unsubscribeLite("bob");
            say(producer, "bob b1", "ann a2");
            last.await(WAIT_SECONDS, TimeUnit.SECONDS);
        }
        Map<String, Object> found = new TreeMap<>();
        seen.forEach((name, bodies) -> found.put(name, List.copyOf((Set<?>) bodies)));
        return found;
    }

    private static Object joined(Object one, Object other) {
        Set<Object> all = new TreeSet<>((Set<?>) one);
        all.addAll((Set<?>) other);
        return all;
    }

    private static void say(Producer producer, String... words) throws Exception {
        for (String each : words) {
            String[] of = each.split(" ");
            producer.send(message(of[1]).setLiteTopic(of[0]).build());
        }
    }

    /** Send and receive until standard input ends, whatever becomes of brokers meanwhile. */
    private static Map<String, Object> steady() throws Exception {
        var stop = new AtomicBoolean();
        var sent = Collections.synchronizedSet(new TreeSet<String>());
        var faults = new ConcurrentHashMap<String, Integer>();
        var sending = new Thread(() -> sendUntil(stop, sent, faults));
        sending.start();
        var told = new Thread(() -> stop.set(isOver()));
        told.setDaemon(true);
        told.start();
        Set<String> seen = new TreeSet<>();
        Set<String> done = new HashSet<>();
        List<String> again = new ArrayList<>();
        SimpleConsumer consumer = consumer("-readers", FilterExpression.SUB_ALL);
        long until = Long.MAX_VALUE;
        while (System.nanoTime() < until) {
            if (stop.get() && until == Long.MAX_VALUE) {
                sending.join();
                until = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_SECONDS);
            }
            List<MessageView> got;
            try {
                got = consumer.receive(32, Duration.ofSeconds(20));
            } catch (Exception error) {
                faults.merge("receive " + error.getClass().getSimpleName(), 1, Integer::sum);
                Thread.sleep(500);
                continue;
            }
            if (got.isEmpty() && stop.get() && seen.containsAll(sent)) {
                break;
            }
            for (MessageView view : got) {
                String handle = ((MessageViewImpl) view).getReceiptHandle();
                String record = handle.substring(handle.lastIndexOf(' ') + 1);
                seen.add(body(view));
                if (done.contains(record)) { // what was sent twice has two
                    again.add(body(view));
                }
                try {
                    consumer.ack(view);
                    done.add(record);
                } catch (Exception error) {
                    faults.merge("ack " + error.getClass().getSimpleName(), 1, Integer::sum);
                }
            }
        }
        List<String> lost = new ArrayList<>(sent);
        lost.removeAll(seen);
        Map<String, Object> found = new TreeMap<>();
        found.put("sent", sent.size());
        found.put("lost", lost);
        found.put("again", again);
        found.put("faults", faults);
        return found;
    }

    private static void sendUntil(AtomicBoolean stop, Set<String> sent, Map<String, Integer> faults) {
        try (Producer producer = producer()) {
            for (int number = 0; !stop.get(); number++) {
                try {
                    producer.send(message("t" + number).build());
                } catch (Exception error) {
                    faults.merge("send " + error.getClass().getSimpleName(), 1, Integer::sum);
                    Thread.sleep(100);
                    continue;
                }
                sent.add("t" + number);
                if (sent.size() % 20 == 0) {
                    System.out.println(sent.size());
                }
                Thread.sleep(10);
            }
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    /** Wait until standard input ends. */
    private static boolean isOver() {
        try {
            System.in.readAllBytes();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return true;
    }

    /** Made once the group has dead letters: there is no such topic before. */
    private static SimpleConsumer deadLetters(String group) throws Exception {
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_SECONDS);
        while (true) {
            try {
                return SDK.newSimpleConsumerBuilder()
                        .setClientConfiguration(config)
                        .setConsumerGroup(group + "-dead")
                        .setAwaitDuration(Duration.ofSeconds(5))
                        .setSubscriptionExpressions(
                                Map.of("%DLQ%" + group, FilterExpression.SUB_ALL))
                        .build();
            } catch (Exception error) {
                if (System.nanoTime() > until) {
                    throw error;
                }
                Thread.sleep(500);
            }
        }
    }

    /** Send one message, or say why not. */
    private static Map<String, Object> send() {
        try (Producer producer = producer()) {
            producer.send(message("sent").build());
        } catch (Exception error) {
            Throwable cause = error;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            return new TreeMap<>(Map.of("refused", cause.toString()));
        }
        return new TreeMap<>(Map.of("sent", 1));
    }

    /** Read what others have sent. */
    private static Map<String, Object> others() throws Exception {
        try (SimpleConsumer consumer = consumer("-others", FilterExpression.SUB_ALL)) {
            return new TreeMap<>(Map.of("bodies", bodies(read(consumer, 4), true)));
        }
    }

    private static Producer producer() throws Exception {
        return SDK.newProducerBuilder().setClientConfiguration(config).setTopics(topic).build();
    }

    private static SimpleConsumer consumer(String suffix, FilterExpression wanted)
            throws Exception {
        return SDK.newSimpleConsumerBuilder()
                .setClientConfiguration(config)
                .setConsumerGroup(topic + suffix)
                .setAwaitDuration(Duration.ofSeconds(5))
                .setSubscriptionExpressions(Map.of(topic, wanted))
                .build();
    }

    private static PushConsumer pushConsumer(
            String suffix, org.apache.rocketmq.client.apis.consumer.MessageListener listener)
            throws Exception {
        return SDK.newPushConsumerBuilder()
                .setClientConfiguration(config)
                .setConsumerGroup(topic + suffix)
                .setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL))
                .setMessageListener(listener)
                .build();
    }

    private static MessageBuilder message(String body) {
        return SDK.newMessageBuilder()
                .setTopic(topic)
                .setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    private static List<MessageView> read(SimpleConsumer consumer, int count) throws Exception {
        List<MessageView> found = new ArrayList<>();
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_SECONDS);
        while (found.size() < count && System.nanoTime() < until) {
            for (MessageView view : consumer.receive(32, Duration.ofSeconds(20))) {
                consumer.ack(view);
                found.add(view);
            }
        }
        return found;
    }

    private static List<String> bodies(List<MessageView> views, boolean sorted) {
        List<String> found = new ArrayList<>(views.stream().map(Main::body).toList());
        if (sorted) {
            Collections.sort(found);
        }
        return found;
    }

    private static String body(MessageView view) {
        return StandardCharsets.UTF_8.decode(view.getBody()).toString();
    }

    private static String json(Object value) {
        if (value instanceof Map<?, ?> map) {
            List<String> parts = new ArrayList<>();
            map.forEach((name, each) -> parts.add(json(name) + ":" + json(each)));
            return "{" + String.join(",", parts) + "}";
        }
        if (value instanceof List<?> list) {
            return "[" + String.join(",", list.stream().map(Main::json).toList()) + "]";
        }
        if (value instanceof Number || value instanceof Boolean) {
            return value.toString();
        }
        String text = String.valueOf(value).replace("\\", "\\\\").replace("\"", "'");
        return '"' + text.replace("\n", " ") + '"';
    }
}
