"""The artifact cache on this machine: results of actions, by the digest of all that went into them."""
