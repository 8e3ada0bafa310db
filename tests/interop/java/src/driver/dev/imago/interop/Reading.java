package dev.imago.interop;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/** How a group reads a backlog: messages are counted, with time and processor time from the first one on. */
public final class Reading {
    private final OperatingSystemMXBean process =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private final AtomicLong messages = new AtomicLong();
    private final AtomicLong bytes = new AtomicLong();
    private final CountDownLatch end = new CountDownLatch(1);
    private final long wanted;
    private volatile Instant first;
    private volatile Instant last;

    private record Instant(long nanos, long processorNanos) {}

    public Reading(long wanted) {
        this.wanted = wanted;
    }

    public void count(int length) {
        bytes.addAndGet(length);
        long seen = messages.incrementAndGet();
        if (seen == 1) {
            first = now();
        }
        if (seen == wanted) {
            last = now();
            end.countDown();
        }
    }

    /** Waits until all that are wanted have come, or the time is over. */
    public Map<String, Object> await(long timeoutMs) throws InterruptedException {
        boolean whole = end.await(timeoutMs, TimeUnit.MILLISECONDS);
        Instant until = whole ? last : now();
        Instant from = first == null ? until : first;
        Map<String, Object> form = new LinkedHashMap<>();
        form.put("whole", whole);
        form.put("messages", messages.get());
        form.put("bytes", bytes.get());
        form.put("seconds", (until.nanos - from.nanos) / 1e9);
        form.put("processor_seconds", (until.processorNanos - from.processorNanos) / 1e9);
        return form;
    }

    private Instant now() {
        return new Instant(System.nanoTime(), process.getProcessCpuTime());
    }
}
