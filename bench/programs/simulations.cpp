// Steps of simulations.
#include "programs.h"

#include <egret/functional/fourier.h>

#include <cmath>

namespace egret::programs {

namespace {

void add_particles(Programs& p) {
  p.add("simulation/n_body",
        {data({p.size(2048, 11), 3}), data({p.size(2048, 11), 3}, DType::F32, 0.1),
         data({p.size(2048, 11)}, DType::F32, 0.5, 1)},
        [](const Tensors& t) -> Tensors {
          const Tensor d = t[0].unsqueeze(0) - t[0].unsqueeze(1);
          const Tensor r2 = d.square().sum(-1) + 1e-3;
          const Tensor force = (d * (t[2] * pow(r2, -1.5)).unsqueeze(-1)).sum(1);
          const Tensor v = t[1] + force * 1e-3;
          return {t[0] + v * 1e-3, v};
        });
  p.train("simulation/lennard_jones_train", {data({p.size(1000, 9), 3}, DType::F32, 8)},
          [](const Tensors& t) {
            const Tensor r2 =
                (t[0].unsqueeze(0) - t[0].unsqueeze(1)).square().sum(-1) + eye(t[0].size(0)) + 0.5;
            const Tensor s6 = pow(1 / r2, 3);
            return with_gradients(((s6.square() - s6) * (1 - eye(t[0].size(0)))).sum() * 2, t);
          });
  p.add("simulation/lorenz", {data({p.size(100000, 30), 3})}, [](const Tensors& t) -> Tensors {
    const auto rate = [](const Tensor& s) {
      const Tensor x = s.select(1, 0), y = s.select(1, 1), z = s.select(1, 2);
      return stack({(y - x) * 10, x * (28 - z) - y, x * y - z * (8.0 / 3)}, 1);
    };
    Tensor s = t[0];
    for (int i = 0; i < 2; ++i) { // Runge and Kutta's fourth order
      const Tensor a = rate(s), b = rate(s + a * 0.005), c = rate(s + b * 0.005),
                   d = rate(s + c * 0.01);
      s = s + (a + b * 2 + c * 2 + d) * (0.01 / 6);
    }
    return {s};
  });
  p.add("simulation/deposit",
        {data({p.size(200000, 40), 2}, DType::F32, 0.49, 0.5), data({p.size(200000, 40)})},
        [=](const Tensors& t) -> Tensors {
          const std::int64_t side = p.size(128, 9); // cloud in cell
          const Tensor at = t[0] * static_cast<double>(side - 1), cell = floor(at), f = at - cell;
          Tensor grid = zeros({side * side});
          for (int dy = 0; dy < 2; ++dy)
            for (int dx = 0; dx < 2; ++dx) {
              const Tensor wy = dy ? f.select(1, 0) : 1 - f.select(1, 0),
                           wx = dx ? f.select(1, 1) : 1 - f.select(1, 1);
              const Tensor index =
                  ((cell.select(1, 0) + dy) * side + cell.select(1, 1) + dx).to(DType::I64);
              grid = index_add(grid, index, wy * wx * t[1], 0);
            }
          return {grid.reshape({side, side})};
        });
  p.add("simulation/option_paths", {data({p.size(20000, 9), p.size(60, 7)}, DType::F32, 1.7)},
        [](const Tensors& t) -> Tensors {
          const Tensor prices = exp(cumsum(t[0] * 0.02 - 0.0002, 1)) * 100;
          const Tensor asian = relu(prices.mean(1) - 100);
          const Tensor barrier = where(prices.max(1) < 120, relu(prices.select(1, -1) - 100), 0.0);
          return {asian.mean(), barrier.mean(), asian.std()};
        });
}

void add_fields(Programs& p) {
  const std::int64_t side = p.size(768, 17);
  p.add("simulation/wave_2d", {data({side, side}), data({side, side})},
        [](const Tensors& t) -> Tensors {
          Tensor now = t[0], before = t[1];
          for (int i = 0; i < 4; ++i) {
            const Tensor around = roll(now, {1}, {0}) + roll(now, {-1}, {0}) + roll(now, {1}, {1}) +
                                  roll(now, {-1}, {1});
            const Tensor next = now * 2 - before + (around - now * 4) * 0.2;
            before = now;
            now = next;
          }
          return {now, before};
        });
  p.add("simulation/burgers", {data({p.size(256, 5), p.size(4096, 33)})},
        [](const Tensors& t) -> Tensors {
          Tensor u = t[0];
          for (int i = 0; i < 4; ++i) {
            const Tensor left = roll(u, {1}, {1}), right = roll(u, {-1}, {1});
            const Tensor slope = where(u > 0, u - left, right - u);
            u = u - u * slope * 0.1 + (left - u * 2 + right) * 0.05;
          }
          return {u};
        });
  p.add("simulation/gray_scott",
        {data({side, side}, DType::F32, 0.5, 0.5), data({side, side}, DType::F32, 0.25, 0.25)},
        [](const Tensors& t) -> Tensors {
          Tensor u = t[0], v = t[1];
          const auto laplace = [](const Tensor& a) {
            return roll(a, {1}, {0}) + roll(a, {-1}, {0}) + roll(a, {1}, {1}) + roll(a, {-1}, {1}) -
                   a * 4;
          };
          for (int i = 0; i < 2; ++i) {
            const Tensor uvv = u * v * v, next = u + laplace(u) * 0.16 - uvv + (1 - u) * 0.035;
            v = v + laplace(v) * 0.08 + uvv - v * 0.1;
            u = next;
          }
          return {u, v};
        });
  p.add("simulation/lattice_boltzmann",
        {data({9, p.size(384, 9), p.size(384, 11)}, DType::F32, 0.01, 0.111)},
        [](const Tensors& t) -> Tensors {
          const int cx[] = {0, 1, 0, -1, 0, 1, -1, -1, 1}, cy[] = {0, 0, 1, 0, -1, 1, 1, -1, -1};
          Tensors moved;
          for (int i = 0; i < 9; ++i)
            moved.push_back(roll(t[0].select(0, i), {cy[i], cx[i]}, {0, 1}));
          const Tensor f = stack(moved, 0), density = f.sum(0);
          Tensor x = zeros_like(density), y = zeros_like(density);
          for (int i = 0; i < 9; ++i) {
            x = x + moved[static_cast<std::size_t>(i)] * cx[i];
            y = y + moved[static_cast<std::size_t>(i)] * cy[i];
          }
          x = x / density;
          y = y / density;
          Tensors result;
          for (int i = 0; i < 9; ++i) {
            const double w = i == 0 ? 4.0 / 9 : i < 5 ? 1.0 / 9 : 1.0 / 36;
            const Tensor cu = (x * cx[i] + y * cy[i]) * 3;
            const Tensor rest =
                density * (1 + cu + cu.square() / 2 - (x.square() + y.square()) * 1.5) * w;
            result.push_back(moved[static_cast<std::size_t>(i)] * 0.4 + rest * 0.6);
          }
          return {stack(result, 0)};
        });
  p.add("simulation/ising",
        {whole({p.size(1024, 16), p.size(1024, 18)}, 2),
         data({p.size(1024, 16), p.size(1024, 18)}, DType::F32, 0.5, 0.5)},
        [](const Tensors& t) -> Tensors {
          Tensor s = t[0].to(DType::F32) * 2 - 1;
          const Tensor rows = arange(t[0].size(0)).unsqueeze(1), columns = arange(t[0].size(1));
          for (int colour = 0; colour < 2; ++colour) {
            const Tensor around =
                roll(s, {1}, {0}) + roll(s, {-1}, {0}) + roll(s, {1}, {1}) + roll(s, {-1}, {1});
            const Tensor flipped =
                (t[1] < exp(s * around * -0.8)) & ((rows + columns) % 2 == colour);
            s = where(flipped, -s, s);
          }
          return {s, s.mean()};
        });
  p.add("simulation/multigrid_cycle",
        {data({p.size(512, 16), p.size(512, 16)}), data({p.size(512, 16), p.size(512, 16)})},
        [](const Tensors& t) -> Tensors {
          const auto laplace = [](const Tensor& a) {
            const Tensor q = pad(a, {1, 1}, {1, 1});
            const std::int64_t h = a.size(0), w = a.size(1);
            return q.narrow(0, 0, h).narrow(1, 1, w) + q.narrow(0, 2, h).narrow(1, 1, w) +
                   q.narrow(0, 1, h).narrow(1, 0, w) + q.narrow(0, 1, h).narrow(1, 2, w) - a * 4;
          };
          const auto smooth = [&](Tensor x, const Tensor& b) {
            for (int i = 0; i < 2; ++i)
              x = x + (laplace(x) - b) * 0.2;
            return x;
          };
          const Tensor x = smooth(t[0], t[1]), residual = t[1] - laplace(x);
          const std::int64_t h = x.size(0) / 2, w = x.size(1) / 2;
          const Tensor coarse = residual.reshape({h, 2, w, 2}).mean({1, 3}) * 4;
          const Tensor error = smooth(zeros_like(coarse), coarse);
          return {smooth(x + repeat_interleave(repeat_interleave(error, 2, 0), 2, 1), t[1])};
        });
}

void add_transforms(Programs& p) {
  const std::int64_t n = p.size(512, 16);
  p.add("simulation/fourier_by_products",
        {data({p.size(128, 5), n}), data({n}, DType::F32, 0.5, 0.5)},
        [](const Tensors& t) -> Tensors {
          const std::int64_t size = t[0].size(1);
          const Tensor line = arange(size);
          const Tensor angle = (line.unsqueeze(1) * line % size).to(DType::F32) *
                               (2 * M_PI / static_cast<double>(size));
          const Tensor re = matmul(t[0] * t[1], cos(angle)), im = matmul(t[0] * t[1], -sin(angle));
          return {sqrt(re.square() + im.square()), atan2(im, re + 10)};
        });
  const Input waves = data({p.size(256, 3), n});
  p.add("simulation/fourier_transform", {waves, waves}, [](const Tensors& t) -> Tensors {
    const fourier::Complex y = fourier::fft({t[0], t[1]});
    return {y.real, y.imag};
  });
  p.add("simulation/power_spectrum", {data({p.size(300, 3), p.size(400, 36)})},
        [](const Tensors& t) -> Tensors {
          const fourier::Complex y = fourier::rfft(t[0]);
          return {y.real.square() + y.imag.square()};
        });
  p.add("simulation/fourier_of_images", {data({p.size(16, 2), p.size(64, 9), p.size(64, 12)})},
        [](const Tensors& t) -> Tensors {
          const fourier::Complex y = fourier::rfftn(t[0], {1, 2});
          return {y.real, y.imag};
        });
  p.add("simulation/long_convolution",
        {data({p.size(32, 2), p.size(3000, 50)}), data({p.size(3000, 50)})},
        [](const Tensors& t) -> Tensors {
          const std::int64_t length = t[0].size(1), size = 2 * length;
          const auto spectrum = [&](const Tensor& a) {
            std::vector<std::int64_t> before(std::size_t(a.rank()), 0), after = before;
            after.back() = size - length;
            return fourier::rfft(pad(a, before, after));
          };
          const Tensor y = fourier::irfft(spectrum(t[0]) * spectrum(t[1]), size);
          return {y.narrow(1, 0, length)};
        });
  const std::int64_t modes = p.size(16, 4), channels = p.size(16, 3);
  p.train("simulation/spectral_layer_train",
          {data({p.size(8, 2), channels, p.size(128, 12)}),
           weight({channels, channels, modes}, channels),
           weight({channels, channels, modes}, channels)},
          [](const Tensors& t) {
            const std::int64_t m = t[1].size(2), rest = t[0].size(2) / 2 + 1 - m;
            const fourier::Complex x = fourier::rfft(t[0]);
            const fourier::Complex low = {x.real.narrow(2, 0, m), x.imag.narrow(2, 0, m)};
            const auto mixed = [](const Tensor& a, const Tensor& w) {
              return einsum("bim,iom->bom", {a, w});
            };
            const fourier::Complex y = {mixed(low.real, t[1]) - mixed(low.imag, t[2]),
                                        mixed(low.real, t[2]) + mixed(low.imag, t[1])};
            const Tensor out = fourier::irfft(
                {pad(y.real, {0, 0, 0}, {0, 0, rest}), pad(y.imag, {0, 0, 0}, {0, 0, rest})});
            return with_gradients(out.square().mean(), t);
          });
  p.add("simulation/spectrogram",
        {data({p.size(8, 2), p.size(16000, 300)}), weight({p.size(40, 5), 129}, 129)},
        [](const Tensors& t) -> Tensors {
          const Tensor frames = unfold(t[0], 1, 256, 128);
          const Tensor k = arange(129, DType::F32), i = arange(256, DType::F32);
          const Tensor angle = i.unsqueeze(1) * k * (2 * M_PI / 256);
          const Tensor windowed = frames * (0.5 - cos(i * (2 * M_PI / 256)) * 0.5);
          const Tensor power =
              matmul(windowed, cos(angle)).square() + matmul(windowed, sin(angle)).square();
          return {log(abs(linear(power, t[1])) + 1e-3)};
        });
  p.add("simulation/cosine_blocks", {data({p.size(4, 1), p.size(512, 16), p.size(512, 24)})},
        [](const Tensors& t) -> Tensors { // as JPEG does
          const Tensor k = arange(8, DType::F32), x = arange(8, DType::F32) + 0.5;
          const Tensor basis = cos(k.unsqueeze(1) * x * (M_PI / 8)) *
                               where(k == 0, std::sqrt(0.125), 0.5).unsqueeze(1);
          const std::int64_t b = t[0].size(0), h = t[0].size(1) / 8, w = t[0].size(2) / 8;
          const Tensor blocks = t[0].reshape({b, h, 8, w, 8}).transpose(2, 3);
          return {matmul(matmul(basis, blocks), basis.transpose())};
        });
  p.add("simulation/kalman",
        {data({p.size(20000, 7), 4}), data({p.size(20000, 7), 4, 4}, DType::F32, 0.5),
         data({p.size(20000, 7), 2})},
        [](const Tensors& t) -> Tensors {
          const Tensor f = tensor({{1.0, 0.0, 0.1, 0.0},
                                   {0.0, 1.0, 0.0, 0.1},
                                   {0.0, 0.0, 1.0, 0.0},
                                   {0.0, 0.0, 0.0, 1.0}});
          const Tensor h = eye(2, 4);
          const Tensor x = matmul(t[0], f.transpose());
          const Tensor c = matmul(t[1], t[1].transpose()) + eye(4);
          const Tensor q = matmul(matmul(f, c), f.transpose()) + eye(4) * 0.01;
          const Tensor s = matmul(matmul(h, q), h.transpose()) + eye(2) * 0.1;
          const Tensor a = s.select(1, 0).select(1, 0), b = s.select(1, 0).select(1, 1),
                       d = s.select(1, 1).select(1, 1);
          const Tensor inverse =
              stack({d, -b, -b, a}, 1).reshape({-1, 2, 2}) / (a * d - b * b).reshape({-1, 1, 1});
          const Tensor gain = matmul(matmul(q, h.transpose()), inverse);
          const Tensor y = (t[2] - matmul(x, h.transpose())).unsqueeze(-1);
          return {x + matmul(gain, y).squeeze(-1), q - matmul(matmul(gain, h), q)};
        });
}

} // namespace

void add_simulations(Programs& p) {
  add_particles(p);
  add_fields(p);
  add_transforms(p);
}

} // namespace egret::programs
