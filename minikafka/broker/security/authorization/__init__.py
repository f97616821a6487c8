"""Authorization of decoded requests, before their handlers, when `authorizer.class.name` is set."""
