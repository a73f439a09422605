#!/usr/bin/env python3
"""many_rules.py >FILE.egg: 600 rules over 80 relations of 30 to 63 facts, for the time that planning takes."""
import random

random.seed(3)
TABLES = 80
for i in range(TABLES):
    print(f"(relation T{i} (i64 i64))")
for r in range(600):
    i, j, k, l = [random.randrange(TABLES) for _ in range(4)]
    print(f"(rule ((T{i} a b) (T{j} b c) (T{l} d c) (= {r % 9} (% (+ (* a 7) (* d 3)) 9))) ((T{k} a d)))")
for i in range(TABLES):
    for _ in range(30 + i % 34):
        print(f"(T{i} {random.randrange(100)} {random.randrange(100)})")
print("(run 12)\n(print-size)")
