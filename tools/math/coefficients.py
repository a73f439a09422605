#!/usr/bin/env python3
"""Minimax polynomials for the functions in src/backend/cpu_codegen/math_*.cpp: prints each with its largest error.

Each fit is an exchange (Remez) iteration in 60 digits. Coefficients are rounded one by one, the lowest first, to the format in which they are
used, and the rest is fitted again, so that rounding costs almost nothing. Needs Python's mpmath.
"""
import struct
import mpmath as mp

mp.mp.dps = 60


def to_f32(x):
    return mp.mpf(struct.unpack("f", struct.pack("f", float(x)))[0])


def to_f64(x):
    return mp.mpf(float(x))


def solve(f, weight, powers, points):
    """Coefficients c and level e with sum c_i x^p_i + (-1)^k e / weight(x) = f(x) at the points."""
    n = len(powers)
    a = mp.matrix(n + 1, n + 1)
    b = mp.matrix(n + 1, 1)
    for row, x in enumerate(points):
        for col, p in enumerate(powers):
            a[row, col] = x ** p
        a[row, n] = (-1) ** row / weight(x)
        b[row] = f(x)
    s = mp.lu_solve(a, b)
    return [s[i] for i in range(n)], s[n]


def remez(f, weight, powers, lo, hi, rounds=12, grid=600):
    n = len(powers)
    lo, hi = mp.mpf(lo), mp.mpf(hi)
    points = [(lo + hi) / 2 - (hi - lo) / 2 * mp.cos(mp.pi * k / n) for k in range(n + 1)]
    xs = [(lo + hi) / 2 - (hi - lo) / 2 * mp.cos(mp.pi * k / grid) for k in range(grid + 1)]
    fx, wx = [f(x) for x in xs], [weight(x) for x in xs]
    for _ in range(rounds):
        c, _ = solve(f, weight, powers, points)
        err = [(sum(ci * x ** p for ci, p in zip(c, powers)) - y) * w for x, y, w in zip(xs, fx, wx)]
        extrema, i = [], 0
        while i <= grid:
            j = i
            while j + 1 <= grid and (err[j + 1] >= 0) == (err[i] >= 0):
                j += 1
            extrema.append(max(range(i, j + 1), key=lambda k: abs(err[k])))
            i = j + 1
        while len(extrema) > n + 1:
            extrema.pop(0 if abs(err[extrema[0]]) < abs(err[extrema[-1]]) else -1)
        if len(extrema) < n + 1:
            break
        points = [xs[k] for k in extrema]
    return c, max(abs(e) for e in err)


def fit(name, f, weight, powers, lo, hi, rounding, skip=0):
    """Prints coefficients of sum c_i x^powers[i]; weight(x) * error is what is made small."""
    plain, weight = weight, lambda x: max(plain(x), mp.mpf("1e-20"))
    fixed, left, target = [], list(powers), f
    while left:
        c, err = remez(target, weight, left, lo, hi)
        value = rounding(c[0])
        fixed.append((left[0], value))
        done = list(fixed)
        target = lambda x, done=done: f(x) - sum(v * x ** p for p, v in done)
        left = left[1:]
    worst = max(abs((sum(v * x ** p for p, v in fixed) - f(x)) * weight(x))
                for x in [mp.mpf(lo) + (mp.mpf(hi) - lo) * k / 1999 for k in range(2000)])
    print(f"{name}: error 2^{mp.nstr(mp.log(worst, 2), 5)}")
    print("   " + ", ".join(float(v).hex() for _, v in fixed))


def series(f, x, tiny, value):
    return value if abs(x) < tiny else f(x)


half_ln2 = mp.log(2) / 2 * mp.mpf("1.01")
# e^r = 1 + r + r^2 p(r), relative to e^r - 1, which expm1 needs
fit("exp p", lambda r: series(lambda t: (mp.expm1(t) - t) / t ** 2, r, 1e-12, mp.mpf(1) / 2),
    lambda r: abs(r ** 2 / mp.expm1(r)) if abs(r) > 1e-12 else mp.mpf(0), range(5), -half_ln2, half_ln2, to_f32)
# 2^r = 1 + r p(r)
fit("exp2 p", lambda r: series(lambda t: (mp.mpf(2) ** t - 1) / t, r, 1e-12, mp.log(2)),
    lambda r: abs(r) / mp.mpf(2) ** r, range(6), -0.505, 0.505, to_f32)
# log(1+f) = f - f^2/2 + f^3 p(f)
lo, hi = mp.sqrt(0.5) - 1, mp.sqrt(2) - 1
fit("log p", lambda t: series(lambda f: (mp.log1p(f) - f + f ** 2 / 2) / f ** 3, t, 1e-10, mp.mpf(1) / 3),
    lambda f: abs(f ** 3 / mp.log1p(f)) if abs(f) > 1e-12 else mp.mpf(0), range(9), lo, hi, to_f32)
# log2(1+f) = log(1+f) C, C = 1/ln 2 in two parts
c = 1 / mp.log(2)
print("log2 C", float(to_f32(c)).hex(), float(to_f32(c - to_f32(c))).hex())
# sin r = r + r^3 p(r^2), cos r = 1 - r^2/2 + r^4 p(r^2)
top = mp.mpf("0.83") ** 2
fit("sin p", lambda z: series(lambda t: (mp.sin(mp.sqrt(t)) / mp.sqrt(t) - 1) / t, z, 1e-12, -mp.mpf(1) / 6),
    lambda z: z / (mp.sin(mp.sqrt(z)) / mp.sqrt(z)) if z > 1e-12 else mp.mpf(0), range(4), 0, top, to_f32)
fit("cos p", lambda z: series(lambda t: (mp.cos(mp.sqrt(t)) - 1 + t / 2) / t ** 2, z, 1e-8, mp.mpf(1) / 24),
    lambda z: z ** 2 / mp.cos(mp.sqrt(z)), range(3), 0, top, to_f32)
h = mp.pi / 2
parts = []
for _ in range(3):
    parts.append(to_f32(h))
    h -= parts[-1]
print("pi/2 parts", [float(p).hex() for p in parts])
l = mp.log(2)
print("ln2 parts", [float(x).hex() for x in (to_f32(l), to_f32(l - to_f32(l)))])
short = mp.mpf(int(l * 2 ** 15)) / 2 ** 15
print("ln2 short parts", float(short).hex(), float(to_f32(l - short)).hex())
# erf x = 1 - exp(-(x + x q(x))) for 0 <= x <= 4
fit("erf q", lambda x: -mp.log(mp.erfc(x)) / x - 1 if x > 1e-12 else 2 / mp.sqrt(mp.pi) - 1,
    lambda x: x * mp.erfc(x) / mp.erf(x) if x > 1e-12 else mp.sqrt(mp.pi) / 2, range(9), 0, 4, to_f32)
# For pow, in f64: log2(m) = s p(s^2), s = (m-1)/(m+1); 2^r = p(r)
s_top = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2
fit("pow log2 p", lambda z: series(lambda t: 2 * mp.atanh(mp.sqrt(t)) / mp.sqrt(t) * c, z, 1e-14, 2 * c),
    lambda z: 1 / (2 * c), range(7), 0, s_top * mp.mpf("1.001"), to_f64)
fit("pow exp2 p", lambda r: mp.mpf(2) ** r, lambda r: 1 / mp.mpf(2) ** r, range(8), -0.505, 0.505, to_f64)
# In f64: log(1+f) = f - f^2/2 + s (f^2/2 + z p(z)), s = f/(2+f), z = s^2; sine and cosine as above
fit("log p in f64", lambda z: series(lambda t: (2 * mp.atanh(mp.sqrt(t)) / mp.sqrt(t) - 2) / t, z, 1e-20, mp.mpf(2) / 3),
    lambda z: z / 2, range(7), 0, s_top * mp.mpf("1.001"), to_f64)
top = mp.mpf("0.79") ** 2
fit("sin p in f64", lambda z: series(lambda t: (mp.sin(mp.sqrt(t)) / mp.sqrt(t) - 1) / t, z, 1e-20, -mp.mpf(1) / 6),
    lambda z: z / (mp.sin(mp.sqrt(z)) / mp.sqrt(z)) if z > 1e-20 else mp.mpf(0), range(6), 0, top, to_f64)
fit("cos p in f64", lambda z: series(lambda t: (mp.cos(mp.sqrt(t)) - 1 + t / 2) / t ** 2, z, 1e-12, mp.mpf(1) / 24),
    lambda z: z ** 2 / mp.cos(mp.sqrt(z)), range(6), 0, top, to_f64)


def shortened(x, bits):
    """The leading bits of x."""
    unit = mp.mpf(2) ** (int(mp.floor(mp.log(x, 2))) - bits + 1)
    return mp.floor(x / unit) * unit


parts, h = [], mp.pi / 2
for bits in (33, 33, 33):
    parts.append(shortened(h, bits))
    h -= parts[-1]
print("pi/2 parts in f64", [float(p).hex() for p in parts + [to_f64(h)]])
print("ln2 parts in f64", float(shortened(l, 33)).hex(), float(to_f64(l - shortened(l, 33))).hex())
print("1/ln2 parts in f64", float(shortened(c, 22)).hex(), float(to_f64(c - shortened(c, 22))).hex())
# For compositions in src/tensor/math.cpp: atan t = t + t^3 p(t^2) for 0 <= t <= 1, and erfc x = exp(-x^2) p((x-2)/(x+2)) / (1+x)
for rounding, terms in ((to_f32, 9), (to_f64, 20)):
    fit(f"atan p, {terms} terms", lambda z: series(lambda t: (mp.atan(mp.sqrt(t)) / mp.sqrt(t) - 1) / t, z, 1e-12, -mp.mpf(1) / 3),
        lambda z: z / (mp.atan(mp.sqrt(z)) / mp.sqrt(z)) if z > 1e-12 else mp.mpf(0), range(terms), 0, 1, rounding)


def scaled_erfc(u):
    x = 2 * (1 + u) / (1 - u)
    return mp.erfc(x) * mp.exp(x * x) * (1 + x)


# p is smooth and of size 1, so that a Chebyshev fit is as good as a minimax one.
for rounding, terms, last in ((to_f32, 11, 10.2), (to_f64, 27, 27.5)):
    c, err = mp.chebyfit(scaled_erfc, [-1, (mp.mpf(last) - 2) / (mp.mpf(last) + 2)], terms, error=True)
    print(f"erfc p, {terms} terms: error 2^{mp.nstr(mp.log(err, 2), 5)}")
    print("   " + ", ".join(float(rounding(v)).hex() for v in reversed(c)))
