package dev.imago.interop.metaq;

import com.taobao.metamorphosis.Message;
import com.taobao.metamorphosis.client.MessageSessionFactory;
import com.taobao.metamorphosis.client.TopicBrowser;
import com.taobao.metamorphosis.client.consumer.ConsumerConfig;
import com.taobao.metamorphosis.client.consumer.LoadBalanceStrategy;
import com.taobao.metamorphosis.client.consumer.MessageConsumer;
import com.taobao.metamorphosis.client.consumer.MessageListener;
import com.taobao.metamorphosis.client.extension.MetaBroadcastMessageSessionFactory;
import com.taobao.metamorphosis.cluster.Partition;
import com.taobao.metamorphosis.consumer.MessageIterator;
import com.taobao.metamorphosis.exception.MetaClientException;
import dev.imago.interop.Arguments;
import dev.imago.interop.Driver;
import dev.imago.interop.Handles;
import dev.imago.interop.Inbox;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** Commands about consumers: subscribing, the one-shot get, and the topic browser. */
final class Consumers {
    private static final int FETCH_BYTES = 1 << 20;
    private final Handles<MessageSessionFactory> factories;
    private final Handles<Subscriber> subscribers = new Handles<>();

    Consumers(Handles<MessageSessionFactory> factories) {
        this.factories = factories;
    }

    void register(Driver driver) {
        driver.on("consumer.start", this::start)
            .on("consumer.take", this::take)
            .on("consumer.stop", this::stop)
            .on("get", this::get)
            .on("browse", this::browse);
    }

    private Object start(Arguments with) throws MetaClientException {
        MessageSessionFactory factory = factories.get(with.text("factory"));
        ConsumerConfig config = config(with);
        MessageConsumer consumer = factory instanceof MetaBroadcastMessageSessionFactory broadcast
            ? broadcast.createBroadcastConsumer(config)
            : factory.createConsumer(config);
        Subscriber subscriber = new Subscriber(consumer, with.count("failures", 0));
        for (String topic : with.texts("topics")) {
            consumer.subscribe(topic, with.count("fetch_bytes", FETCH_BYTES), subscriber);
        }
        consumer.completeSubscribe();
        subscribers.put(with.text("name"), subscriber);
        return true;
    }

    private static ConsumerConfig config(Arguments with) {
        ConsumerConfig config = new ConsumerConfig(with.text("group"));
        config.setMaxDelayFetchTimeInMills(with.number("max_delay_ms", 200));
        config.setCommitOffsetPeriodInMills(with.number("commit_ms", 200));
        config.setMaxFetchRetries(with.count("retries_max", 5));
        if (with.flag("from_max")) {
            config.setConsumeFromMaxOffset();
        }
        if (with.flag("consistent_hash")) {
            config.setLoadBalanceStrategyType(LoadBalanceStrategy.Type.CONSIST);
        }
        return config;
    }

    private Object take(Arguments with) throws InterruptedException {
        return subscribers.get(with.text("name")).inbox
            .take(with.count("count", 1), with.number("timeout_ms"));
    }

    /** Stops the consumer, and hands over what nobody has taken yet. */
    private Object stop(Arguments with) throws Exception {
        Subscriber subscriber = subscribers.remove(with.text("name"));
        subscriber.consumer.shutdown();
        return subscriber.inbox.take(0, 0);
    }

    /** One fetch. The result is null where the client says that there is nothing. */
    private Object get(Arguments with) throws Exception {
        MessageSessionFactory factory = factories.get(with.text("factory"));
        MessageConsumer consumer = factory.createConsumer(new ConsumerConfig(with.text("group")));
        MessageIterator found = consumer.get(
            with.text("topic"), new Partition(with.text("partition")), with.number("offset"),
            with.count("bytes_max", FETCH_BYTES), 10, TimeUnit.SECONDS);
        if (found == null) {
            return null;
        }
        List<Object> messages = new ArrayList<>();
        while (found.hasNext()) {
            messages.add(describe(found.next()));
        }
        Map<String, Object> form = new LinkedHashMap<>();
        form.put("messages", messages);
        form.put("size", found.getDataLength());
        form.put("next", with.number("offset") + found.getOffset());
        return form;
    }

    private Object browse(Arguments with) throws MetaClientException {
        TopicBrowser browser =
            factories.get(with.text("factory")).createTopicBrowser(with.text("topic"));
        List<Object> messages = new ArrayList<>();
        for (Iterator<Message> each = browser.iterator(); each.hasNext(); ) {
            messages.add(describe(each.next()));
        }
        browser.shutdown();
        return messages;
    }

    private static Map<String, Object> describe(Message message) {
        Map<String, Object> form = new LinkedHashMap<>();
        form.put("id", message.getId());
        form.put("topic", message.getTopic());
        form.put("body", Base64.getEncoder().encodeToString(message.getData()));
        form.put("attribute", message.hasAttribute() ? message.getAttribute() : null);
        form.put("partition", message.getPartition() == null ? null : message.getPartition().toString());
        return form;
    }

    /** Keeps what arrives; fails its first deliveries when it was told to. */
    private static final class Subscriber implements MessageListener {
        final Inbox inbox = new Inbox();
        final MessageConsumer consumer;
        private final AtomicInteger failuresLeft;

        Subscriber(MessageConsumer consumer, int failures) {
            this.consumer = consumer;
            this.failuresLeft = new AtomicInteger(failures);
        }

        @Override
        public void recieveMessages(Message message) {
            if (failuresLeft.getAndUpdate(left -> Math.max(0, left - 1)) > 0) {
                throw new IllegalStateException("this delivery was to fail");
            }
            inbox.add(describe(message));
        }

        @Override
        public Executor getExecutor() {
            return null;
        }
    }
}
