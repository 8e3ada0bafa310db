package dev.imago.interop;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** Objects that live between commands, by the name that the caller gave them. */
public final class Handles<T> {
    private final Map<String, T> byName = new ConcurrentHashMap<>();

    public void put(String name, T value) {
        if (byName.putIfAbsent(name, value) != null) {
            throw new IllegalArgumentException("name in use: " + name);
        }
    }

    public T get(String name) {
        T value = byName.get(name);
        if (value == null) {
            throw new IllegalArgumentException("no such name: " + name);
        }
        return value;
    }

    public T remove(String name) {
        T value = get(name);
        byName.remove(name);
        return value;
    }
}
