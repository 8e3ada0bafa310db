package dev.imago.interop.metaq;

import com.taobao.metamorphosis.Message;
import com.taobao.metamorphosis.client.MessageSessionFactory;
import com.taobao.metamorphosis.client.extension.AsyncMetaMessageSessionFactory;
import com.taobao.metamorphosis.client.extension.producer.AsyncMessageProducer;
import com.taobao.metamorphosis.client.extension.producer.OrderedMessagePartitionSelector;
import com.taobao.metamorphosis.client.producer.MessageProducer;
import com.taobao.metamorphosis.client.producer.PartitionSelector;
import com.taobao.metamorphosis.client.producer.RoundRobinPartitionSelector;
import com.taobao.metamorphosis.client.producer.SendMessageCallback;
import com.taobao.metamorphosis.client.producer.SendResult;
import com.taobao.metamorphosis.cluster.Partition;
import com.taobao.metamorphosis.exception.MetaClientException;
import dev.imago.interop.Arguments;
import dev.imago.interop.Driver;
import dev.imago.interop.Handles;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** Commands about producers: simple, with call-back, one-way (asynchronous) and ordered. */
final class Producers {
    private static final long SEND_TIMEOUT_MS = 10_000;
    private final Handles<MessageSessionFactory> factories;
    private final Handles<MessageProducer> producers = new Handles<>();

    Producers(Handles<MessageSessionFactory> factories) {
        this.factories = factories;
    }

    void register(Driver driver) {
        driver.on("producer.start", this::start)
            .on("producer.stop", this::stop)
            .on("producer.send", this::send)
            .on("producer.send_callback", this::sendWithCallback)
            .on("producer.send_one_way", this::sendOneWay);
    }

    private Object start(Arguments with) {
        MessageSessionFactory factory = factories.get(with.text("factory"));
        PartitionSelector selector = selector(with.text("selector", "round-robin"));
        MessageProducer producer = factory instanceof AsyncMetaMessageSessionFactory async
            ? async.createAsyncProducer(selector)
            : factory.createProducer(selector);
        for (String topic : with.texts("topics")) {
            producer.publish(topic);
        }
        if (with.has("default_topic")) {
            producer.setDefaultTopic(with.text("default_topic"));
        }
        producers.put(with.text("name"), producer);
        return true;
    }

    private static PartitionSelector selector(String name) {
        return switch (name) {
            case "round-robin" -> new RoundRobinPartitionSelector();
            case "by-attribute" -> new ByAttribute();
            case "ordered-by-attribute" -> new OrderedByAttribute();
            default -> throw new IllegalArgumentException("unknown selector: " + name);
        };
    }

    private Object stop(Arguments with) throws MetaClientException {
        producers.remove(with.text("name")).shutdown();
        return true;
    }

    private Object send(Arguments with) throws Exception {
        MessageProducer producer = producers.get(with.text("producer"));
        List<Object> results = new ArrayList<>();
        for (Arguments each : with.each("messages")) {
            Message message = message(each);
            SendResult result = producer.sendMessage(message, SEND_TIMEOUT_MS, TimeUnit.MILLISECONDS);
            results.add(describe(message, result));
        }
        return results;
    }

    private Object sendWithCallback(Arguments with) throws Exception {
        MessageProducer producer = producers.get(with.text("producer"));
        List<CompletableFuture<Map<String, Object>>> pending = new ArrayList<>();
        for (Arguments each : with.each("messages")) {
            Message message = message(each);
            CompletableFuture<Map<String, Object>> done = new CompletableFuture<>();
            pending.add(done);
            producer.sendMessage(message, new SendMessageCallback() {
                @Override
                public void onMessageSent(SendResult result) {
                    done.complete(describe(message, result));
                }

                @Override
                public void onException(Throwable thrown) {
                    done.complete(describe(
                        message, new SendResult(false, null, -1, thrown.toString())));
                }
            }, SEND_TIMEOUT_MS, TimeUnit.MILLISECONDS);
        }
        List<Object> results = new ArrayList<>();
        for (CompletableFuture<Map<String, Object>> done : pending) {
            results.add(done.get(SEND_TIMEOUT_MS * 2, TimeUnit.MILLISECONDS));
        }
        return results;
    }

    private Object sendOneWay(Arguments with) {
        AsyncMessageProducer producer = (AsyncMessageProducer) producers.get(with.text("producer"));
        for (Arguments each : with.each("messages")) {
            producer.asyncSendMessage(message(each));
        }
        return true;
    }

    static Message message(Arguments each) {
        return each.has("attribute")
            ? new Message(each.text("topic"), each.bytes("body"), each.text("attribute"))
            : new Message(each.text("topic"), each.bytes("body"));
    }

    static Map<String, Object> describe(Message message, SendResult result) {
        Map<String, Object> form = new LinkedHashMap<>();
        form.put("success", result.isSuccess());
        form.put("partition", result.getPartition() == null ? null : result.getPartition().toString());
        form.put("offset", result.getOffset());
        form.put("error", result.getErrorMessage());
        form.put("id", message.getId());
        return form;
    }

    private static Partition chosen(List<Partition> partitions, Message message) {
        int hash = message.hasAttribute() ? message.getAttribute().hashCode() : 0;
        return partitions.get(Math.floorMod(hash, partitions.size()));
    }

    /** Equal attributes go to the same partition. */
    private static final class ByAttribute implements PartitionSelector {
        @Override
        public Partition getPartition(String topic, List<Partition> partitions, Message message) {
            return chosen(partitions, message);
        }
    }

    /** The same for the ordered producer, which chooses among configured partitions. */
    private static final class OrderedByAttribute extends OrderedMessagePartitionSelector {
        @Override
        protected Partition choosePartition(
                String topic, List<Partition> partitions, Message message) {
            return chosen(partitions, message);
        }
    }
}
