package dev.imago.interop.rocketmq;

import dev.imago.interop.Arguments;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Messages, queues and results to and from the forms that travel as JSON. */
final class Messages {
    private Messages() {}

    static Message read(Arguments with) {
        Message message = new Message(with.text("topic"), with.bytes("body"));
        if (with.has("tags")) {
            message.setTags(with.text("tags"));
        }
        if (with.has("keys")) {
            message.setKeys(with.text("keys"));
        }
        if (with.has("delay_level")) {
            message.setDelayTimeLevel(with.count("delay_level", 0));
        }
        if (with.has("deliver_ms")) {
            MessageAccessor.putProperty(
                message, "TIMER_DELIVER_MS", String.valueOf(with.number("deliver_ms")));
        }
        message.setFlag(with.count("flag", 0));
        with.map("properties").forEach(message::putUserProperty);
        return message;
    }

    static List<Message> readAll(Arguments with) {
        List<Message> messages = new ArrayList<>();
        with.each("messages").forEach(each -> messages.add(read(each)));
        return messages;
    }

    static MessageQueue queue(Arguments with) {
        return new MessageQueue(
            with.text("topic"), with.text("broker"), Math.toIntExact(with.number("queue")));
    }

    static Map<String, Object> write(MessageExt message) {
        Map<String, Object> form = new LinkedHashMap<>();
        form.put("id", message.getMsgId());
        form.put("topic", message.getTopic());
        form.put("broker", message.getBrokerName());
        form.put("queue", message.getQueueId());
        form.put("offset", message.getQueueOffset());
        form.put("body", Base64.getEncoder().encodeToString(message.getBody()));
        form.put("tags", message.getTags());
        form.put("keys", message.getKeys());
        form.put("flag", message.getFlag());
        form.put("sys_flag", message.getSysFlag());
        form.put("reconsumed", message.getReconsumeTimes());
        form.put("born_ms", message.getBornTimestamp());
        form.put("stored_ms", message.getStoreTimestamp());
        form.put("physical_offset", message.getCommitLogOffset());
        form.put("properties", new TreeMap<>(message.getProperties()));
        return form;
    }

    static List<Object> writeAll(Collection<MessageExt> messages) {
        List<Object> forms = new ArrayList<>();
        messages.forEach(message -> forms.add(write(message)));
        return forms;
    }

    static Map<String, Object> write(MessageQueue queue) {
        Map<String, Object> form = new LinkedHashMap<>();
        form.put("topic", queue.getTopic());
        form.put("broker", queue.getBrokerName());
        form.put("queue", queue.getQueueId());
        return form;
    }

    static List<Object> writeQueues(Collection<MessageQueue> queues) {
        List<Object> forms = new ArrayList<>();
        queues.stream().sorted().forEach(queue -> forms.add(write(queue)));
        return forms;
    }

    static Map<String, Object> write(SendResult result) {
        Map<String, Object> form = new LinkedHashMap<>(write(result.getMessageQueue()));
        form.put("status", result.getSendStatus().name());
        form.put("id", result.getMsgId());
        form.put("offset_id", result.getOffsetMsgId());
        form.put("offset", result.getQueueOffset());
        form.put("recall_handle", Versions.recallHandle(result));
        return form;
    }
}
