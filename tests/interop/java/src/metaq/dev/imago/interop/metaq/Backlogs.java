package dev.imago.interop.metaq;

import com.taobao.metamorphosis.Message;
import com.taobao.metamorphosis.client.MessageSessionFactory;
import com.taobao.metamorphosis.client.consumer.ConsumerConfig;
import com.taobao.metamorphosis.client.consumer.MessageConsumer;
import com.taobao.metamorphosis.client.consumer.MessageListener;
import dev.imago.interop.Arguments;
import dev.imago.interop.Driver;
import dev.imago.interop.Handles;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/** A group that comes back to a backlog: what it gets is counted, and not kept. */
final class Backlogs {
    private static final int FETCH_BYTES = 1 << 20;
    private final Handles<MessageSessionFactory> factories;

    Backlogs(Handles<MessageSessionFactory> factories) {
        this.factories = factories;
    }

    void register(Driver driver) {
        driver.on("backlog.read", this::read);
    }

    /** Reads until {@code count} messages have come: how many, and the time from the first one on. */
    private Object read(Arguments with) throws Exception {
        Counter counter = new Counter(with.number("count"));
        ConsumerConfig config = new ConsumerConfig(with.text("group"));
        config.setFetchRunnerCount(with.count("runners", config.getFetchRunnerCount()));
        MessageConsumer consumer = factories.get(with.text("factory")).createConsumer(config);
        try {
            consumer.subscribe(with.text("topic"), with.count("fetch_bytes", FETCH_BYTES), counter);
            consumer.completeSubscribe();
            boolean whole = counter.end.await(with.number("timeout_ms"), TimeUnit.MILLISECONDS);
            Map<String, Object> form = new LinkedHashMap<>();
            form.put("whole", whole);
            form.put("messages", counter.messages.get());
            form.put("bytes", counter.bytes.get());
            form.put("seconds", counter.seconds());
            return form;
        } finally {
            consumer.shutdown();
        }
    }

    private static final class Counter implements MessageListener {
        final AtomicLong messages = new AtomicLong();
        final AtomicLong bytes = new AtomicLong();
        final CountDownLatch end = new CountDownLatch(1);
        private final long wanted;
        private volatile long firstAt;
        private volatile long lastAt;

        Counter(long wanted) {
            this.wanted = wanted;
        }

        @Override
        public void recieveMessages(Message message) {
            bytes.addAndGet(message.getData().length);
            long seen = messages.incrementAndGet();
            if (seen == 1) {
                firstAt = System.nanoTime();
            }
            if (seen == wanted) {
                lastAt = System.nanoTime();
                end.countDown();
            }
        }

        double seconds() {
            long until = lastAt != 0 ? lastAt : System.nanoTime();
            return firstAt == 0 ? 0 : (until - firstAt) / 1e9;
        }

        @Override
        public Executor getExecutor() {
            return null;
        }
    }
}
