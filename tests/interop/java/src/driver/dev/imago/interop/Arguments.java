package dev.imago.interop;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The named arguments of one command. A missing argument without a default is an error. */
public final class Arguments {
    private final JsonObject json;

    public Arguments(JsonObject json) {
        this.json = json;
    }

    public boolean has(String name) {
        return json.has(name) && !json.get(name).isJsonNull();
    }

    public String text(String name) {
        return need(name).getAsString();
    }

    public String text(String name, String whenAbsent) {
        return has(name) ? text(name) : whenAbsent;
    }

    public long number(String name) {
        return need(name).getAsLong();
    }

    public long number(String name, long whenAbsent) {
        return has(name) ? number(name) : whenAbsent;
    }

    public int count(String name, int whenAbsent) {
        return Math.toIntExact(number(name, whenAbsent));
    }

    public boolean flag(String name) {
        return has(name) && need(name).getAsBoolean();
    }

    /** Bytes travel as base64. */
    public byte[] bytes(String name) {
        return Base64.getDecoder().decode(text(name));
    }

    public List<String> texts(String name) {
        List<String> found = new ArrayList<>();
        if (has(name)) {
            need(name).getAsJsonArray().forEach(item -> found.add(item.getAsString()));
        }
        return found;
    }

    public List<Arguments> each(String name) {
        List<Arguments> found = new ArrayList<>();
        need(name).getAsJsonArray().forEach(item -> found.add(new Arguments(item.getAsJsonObject())));
        return found;
    }

    /** The members of an object argument whose values are texts; empty when absent. */
    public Map<String, String> map(String name) {
        Map<String, String> found = new LinkedHashMap<>();
        if (has(name)) {
            need(name).getAsJsonObject().entrySet().forEach(
                member -> found.put(member.getKey(), member.getValue().getAsString()));
        }
        return found;
    }

    private JsonElement need(String name) {
        if (!has(name)) {
            throw new IllegalArgumentException("argument missing: " + name);
        }
        return json.get(name);
    }
}
