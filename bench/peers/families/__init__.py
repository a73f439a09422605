"""The programs of bench/programs in PyTorch, a module for each of its files.

A program is a function of its inputs. With `gradients` it gives a loss, and its results are that and the gradients by those inputs
(numbers of inputs, "all", or "weights": all but the first two); with `update` they are what update(inputs, loss, gradients) gives.
"""
import importlib

PROGRAMS = {}


class Program:
    def __init__(self, function, gradients, update):
        self.function, self.update = function, update
        self.gradients = gradients if isinstance(gradients, str) else tuple(gradients)

    def differentiated(self, count):
        first = {"all": 0, "weights": 2}  # weights stand behind data and targets
        return list(range(first[self.gradients], count)) if self.gradients in first else list(self.gradients)


def program(name, gradients=(), update=None):
    def register(function):
        PROGRAMS[name] = Program(function, gradients, update)
        return function
    return register


for module in ("convolutions", "recurrences", "orders", "scatters", "windows", "samplings", "products", "layouts", "updates", "attentions",
               "experts", "losses", "statistics", "networks", "backbones", "simulations", "algorithms"):
    importlib.import_module("families." + module)
