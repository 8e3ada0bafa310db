package dev.imago.interop.metaq;

import com.taobao.metamorphosis.client.MessageSessionFactory;
import com.taobao.metamorphosis.client.XAMessageSessionFactory;
import com.taobao.metamorphosis.client.producer.MessageProducer;
import com.taobao.metamorphosis.client.producer.RoundRobinPartitionSelector;
import com.taobao.metamorphosis.client.producer.XAMessageProducer;
import dev.imago.interop.Arguments;
import dev.imago.interop.Driver;
import dev.imago.interop.Handles;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import javax.transaction.xa.XAException;
import javax.transaction.xa.XAResource;
import javax.transaction.xa.Xid;

/**
 * Commands about transactions, local and XA. The client binds a transaction to its thread, so each
 * producer has one thread in which all of its commands run.
 */
final class Transactions {
    private static final int FORMAT = 100;
    private final Handles<MessageSessionFactory> factories;
    private final Handles<Session> sessions = new Handles<>();

    Transactions(Handles<MessageSessionFactory> factories) {
        this.factories = factories;
    }

    void register(Driver driver) {
        driver.on("transaction.start", this::start)
            .on("transaction.stop", this::stop)
            .on("transaction.timeout", with -> in(with, session -> {
                session.producer.setTransactionTimeout(with.count("seconds", 0));
                return true;
            }))
            .on("transaction.begin", with -> in(with, session -> {
                session.producer.beginTransaction();
                return true;
            }))
            .on("transaction.send", with -> in(with, session -> send(session, with)))
            .on("transaction.commit", with -> in(with, session -> {
                session.producer.commit();
                return true;
            }))
            .on("transaction.rollback", with -> in(with, session -> {
                session.producer.rollback();
                return true;
            }));
        driver.on("xa.start", with -> in(with, session -> {
            // A producer's resource is for one transaction: it forgets its thread at the end.
            session.resource = ((XAMessageProducer) session.producer).getXAResource();
            session.resource.start(new Id(with.text("xid")), XAResource.TMNOFLAGS);
            return true;
        }));
        for (String step : List.of("end", "fail", "prepare", "commit", "rollback", "forget")) {
            driver.on("xa." + step, with -> in(with, session -> step(session.resource, step, with)));
        }
        driver.on("xa.recover", with -> in(with, session -> recover(session)))
            .on("xa.timeout", with -> in(with, session ->
                session.resource.setTransactionTimeout(with.count("seconds", 0))));
    }

    private Object start(Arguments with) throws Exception {
        MessageSessionFactory factory = factories.get(with.text("factory"));
        Session session = new Session();
        if (with.flag("xa")) {
            XAMessageProducer producer = ((XAMessageSessionFactory) factory)
                .createXAProducer(new RoundRobinPartitionSelector());
            if (with.has("qualifier")) {
                producer.setUniqueQualifier(with.text("qualifier"));
            }
            session.producer = producer;
        } else {
            session.producer = factory.createProducer(new RoundRobinPartitionSelector());
        }
        for (String topic : with.texts("topics")) {
            session.producer.publish(topic);
        }
        sessions.put(with.text("name"), session);
        return true;
    }

    private Object stop(Arguments with) throws Exception {
        Session session = sessions.remove(with.text("name"));
        session.producer.shutdown();
        session.thread.shutdownNow();
        return true;
    }

    private interface Step {
        Object run(Session session) throws Exception;
    }

    private Object in(Arguments with, Step step) throws Exception {
        Session session = sessions.get(with.text("producer"));
        Callable<Object> call = () -> step.run(session);
        try {
            return session.thread.submit(call).get();
        } catch (ExecutionException error) {
            if (error.getCause() instanceof XAException xa) {
                throw new IllegalStateException("XA " + xa.errorCode + ": " + xa.getMessage(), xa);
            }
            throw error.getCause() instanceof Exception cause ? cause : error;
        }
    }

    private static Object send(Session session, Arguments with) throws Exception {
        List<Object> results = new ArrayList<>();
        for (Arguments each : with.each("messages")) {
            var message = Producers.message(each);
            results.add(Producers.describe(message, session.producer.sendMessage(message)));
        }
        return results;
    }

    private static Object step(XAResource resource, String step, Arguments with) throws XAException {
        Xid xid = new Id(with.text("xid"));
        switch (step) {
            case "end" -> resource.end(xid, XAResource.TMSUCCESS);
            case "fail" -> resource.end(xid, XAResource.TMFAIL);
            case "prepare" -> {
                return resource.prepare(xid);
            }
            case "commit" -> resource.commit(xid, with.flag("one_phase"));
            case "rollback" -> resource.rollback(xid);
            case "forget" -> resource.forget(xid);
            default -> throw new IllegalArgumentException(step);
        }
        return true;
    }

    private static Object recover(Session session) throws Exception {
        List<String> found = new ArrayList<>();
        session.resource = ((XAMessageProducer) session.producer).getXAResource();
        for (Xid each : session.resource.recover(XAResource.TMSTARTRSCAN | XAResource.TMENDRSCAN)) {
            found.add(new String(each.getGlobalTransactionId()));
        }
        return found;
    }

    /** A producer and its thread. */
    private static final class Session {
        final ExecutorService thread = Executors.newSingleThreadExecutor();
        MessageProducer producer;
        XAResource resource;
    }

    /** The name of a transaction, as a manager would give it. */
    private record Id(String name) implements Xid {
        @Override
        public int getFormatId() {
            return FORMAT;
        }

        @Override
        public byte[] getGlobalTransactionId() {
            return name.getBytes();
        }

        @Override
        public byte[] getBranchQualifier() {
            return "branch".getBytes();
        }
    }
}
