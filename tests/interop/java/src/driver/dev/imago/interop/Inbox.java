package dev.imago.interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** What a consumer received, in the order in which its listener was called. */
public final class Inbox {
    private final List<Map<String, Object>> messages = new ArrayList<>();

    public synchronized void add(Map<String, Object> message) {
        messages.add(message);
        notifyAll();
    }

    /** Hands over, and forgets, all that is there once {@code count} are, or the time is over. */
    public synchronized List<Map<String, Object>> take(int count, long timeoutMs)
            throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMs);
        while (messages.size() < count) {
            long left = TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime());
            if (left <= 0) {
                break;
            }
            wait(left);
        }
        List<Map<String, Object>> taken = new ArrayList<>(messages);
        messages.clear();
        return taken;
    }
}
