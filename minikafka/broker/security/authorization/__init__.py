"""Authorization: what stands between a decoded request and its handler when `authorizer.class.name` is set."""
