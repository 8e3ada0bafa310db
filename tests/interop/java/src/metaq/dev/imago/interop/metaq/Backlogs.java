package dev.imago.interop.metaq;

import com.taobao.metamorphosis.Message;
import com.taobao.metamorphosis.client.MessageSessionFactory;
import com.taobao.metamorphosis.client.consumer.ConsumerConfig;
import com.taobao.metamorphosis.client.consumer.MessageConsumer;
import com.taobao.metamorphosis.client.consumer.MessageListener;
import dev.imago.interop.Arguments;
import dev.imago.interop.Driver;
import dev.imago.interop.Handles;
import dev.imago.interop.Reading;
import java.util.concurrent.Executor;

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
        Reading reading = new Reading(with.number("count"));
        ConsumerConfig config = new ConsumerConfig(with.text("group"));
        config.setFetchRunnerCount(with.count("runners", config.getFetchRunnerCount()));
        MessageConsumer consumer = factories.get(with.text("factory")).createConsumer(config);
        try {
            consumer.subscribe(
                with.text("topic"), with.count("fetch_bytes", FETCH_BYTES), new Counter(reading));
            consumer.completeSubscribe();
            return reading.await(with.number("timeout_ms"));
        } finally {
            consumer.shutdown();
        }
    }

    private record Counter(Reading reading) implements MessageListener {
        @Override
        public void recieveMessages(Message message) {
            reading.count(message.getData().length);
        }

        @Override
        public Executor getExecutor() {
            return null;
        }
    }
}
