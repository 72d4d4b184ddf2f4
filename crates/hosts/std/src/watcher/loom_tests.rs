//! What threads can do to each other around a shard, in every interleaving.
