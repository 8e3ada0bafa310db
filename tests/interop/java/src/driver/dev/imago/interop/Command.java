package dev.imago.interop;

/** One thing that a driver can do. The result must be something that becomes JSON. */
public interface Command {
    Object run(Arguments arguments) throws Exception;
}
