package dev.imago.interop.rocketmq;

import dev.imago.interop.Driver;

/** An original RocketMQ client (4.9 or 5: the class path decides), driven by commands. */
public final class RocketmqDriver {
    private RocketmqDriver() {}

    public static void main(String[] none) throws Exception {
        Driver driver = new Driver();
        new Producers().register(driver);
        new Transactions().register(driver);
        new PushConsumers().register(driver);
        new PullConsumers().register(driver);
        new LiteConsumers().register(driver);
        new Administration().register(driver);
        new Backlogs().register(driver);
        driver.serve();
    }
}
