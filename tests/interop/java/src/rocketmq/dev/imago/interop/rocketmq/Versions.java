package dev.imago.interop.rocketmq;

import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;

/** What differs between the versions: packages of classes that moved, methods that one lacks. */
final class Versions {
    private Versions() {}

    /** Calls a setter whose only parameter is an enum, which 5 keeps in another package. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    static void setEnum(Object target, String setter, String constant)
            throws ReflectiveOperationException {
        Method method = method(target, setter);
        Class<? extends Enum> type = (Class<? extends Enum>) method.getParameterTypes()[0];
        method.invoke(target, Enum.valueOf(type, constant));
    }

    /** Settings that every client of this suite shares: quick to see changes, alone in its instance. */
    static void prepare(ClientConfig client, String namesrv, String instance) {
        client.setNamesrvAddr(namesrv);
        client.setInstanceName(instance);
        client.setPollNameServerInterval(1000);
        client.setHeartbeatBrokerInterval(1000);
        client.setPersistConsumerOffsetInterval(500);
        client.setMqClientApiTimeout(20_000);
        client.setVipChannelEnabled(false);
    }

    /** The handle by which a message can be taken back; 4.9 has none. */
    static String recallHandle(SendResult result) {
        try {
            return (String) result.getClass().getMethod("getRecallHandle").invoke(result);
        } catch (ReflectiveOperationException missing) {
            return null;
        }
    }

    /** Takes a message back, which 4.9 cannot; returns its id. */
    static String recall(DefaultMQProducer producer, String topic, String handle)
            throws ReflectiveOperationException {
        return (String) producer.getClass()
            .getMethod("recallMessage", String.class, String.class)
            .invoke(producer, topic, handle);
    }

    /** Has brokers deal out the queues, and say whether to pull or to pop them; 4.9 cannot. */
    static void haveQueuesDealtOut(Object consumer) throws ReflectiveOperationException {
        consumer.getClass().getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
    }

    /** Gives a topic the part of another one's route that names one broker. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    static void addRoute(Map routes, String topic, String parent, String broker)
            throws ReflectiveOperationException {
        Object known = routes.get(parent);
        List<Object> brokers = new ArrayList<>();
        for (Object each : (List<?>) known.getClass().getMethod("getBrokerDatas").invoke(known)) {
            if (each.getClass().getMethod("getBrokerName").invoke(each).equals(broker)) {
                brokers.add(each);
            }
        }
        Object route = known.getClass().getConstructor().newInstance();
        route.getClass().getMethod("setBrokerDatas", List.class).invoke(route, brokers);
        route.getClass().getMethod("setQueueDatas", List.class).invoke(route, new ArrayList<>());
        routes.put(topic, route);
    }

    private static Method method(Object target, String name) throws NoSuchMethodException {
        return Arrays.stream(target.getClass().getMethods())
            .filter(each -> each.getName().equals(name) && each.getParameterCount() == 1)
            .findFirst()
            .orElseThrow(() -> new NoSuchMethodException(target.getClass() + "." + name));
    }
}
