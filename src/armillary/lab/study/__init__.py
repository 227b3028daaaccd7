"""Studies of the laboratory: many paired training runs, in a queue that can be killed and goes on."""
