// Whole networks of vision, language and speech at their published sizes: forward, and a loss with
// its gradients by all weights. Their weights follow the input (and the labels) in the order in
// which the network uses them.
#include "programs.h"

namespace egret::programs {

namespace {

/// The inputs of a network, in the order of their use.
class Weights {
public:
  explicit Weights(DType dtype) : dtype_(dtype) {}
  void convolution(std::int64_t out, std::int64_t in, std::int64_t side) {
    list.push_back(weight({out, in, side, side}, in * side * side, dtype_));
  }
  void matrix(std::int64_t out, std::int64_t in) {
    list.push_back(weight({out, in}, in, dtype_));
    list.push_back(data({out}, dtype_, 0.1));
  }
  /// Scale, about `scale`, and shift.
  void norm(std::int64_t width, double scale = 1) {
    list.push_back(data({width}, dtype_, 0.3 * scale, scale));
    list.push_back(data({width}, dtype_, 0.1));
  }
  void vector(Sizes shape, double scale) { list.push_back(data(std::move(shape), dtype_, scale)); }

  std::vector<Input> list;

private:
  DType dtype_;
};

/// Takes them in the same order.
class Reader {
public:
  explicit Reader(const Tensors& all, std::size_t first = 0) : all_(all), at_(first) {}
  const Tensor& next() { return all_.at(at_++); }
  Tensor dense(const Tensor& x) {
    const Tensor& w = next();
    return linear(x, w, next());
  }
  Tensor normalized(const Tensor& x, double eps = 1e-5) {
    const Tensor& scale = next();
    return layer_norm(x, scale, next(), eps);
  }

private:
  const Tensors& all_;
  std::size_t at_;
};

using Forward = std::function<Tensor(Reader&, const Tensor& x)>;

/// NAME, of the network's result, and NAME_train, of the loss against labels of `classes`.
void add_network(Programs& p, const std::string& name, const Input& x, std::int64_t classes,
                 const std::vector<Input>& weights, const Forward& forward) {
  std::vector<Input> inputs = {x};
  inputs.insert(inputs.end(), weights.begin(), weights.end());
  p.add(name, inputs, [forward](const Tensors& t) -> Tensors {
    Reader reader(t, 1);
    return {forward(reader, t[0])};
  });
  inputs.insert(inputs.begin() + 1, whole({x.shape[0]}, classes));
  p.train(name + "_train", inputs, [forward](const Tensors& t) {
    Reader reader(t, 2);
    return with_gradients(cross_entropy(forward(reader, t[0]).to(DType::F32), t[1]),
                          some(t, 2, t.size()));
  });
}

// --- convolutional networks

/// Batch normalization by the batch (He, Zhang, Ren and Sun 2016, as in training).
Tensor batch_normalized(Reader& r, const Tensor& x) {
  const Tensor& scale = r.next();
  return batch_norm(x, {}, {}, scale, r.next(), {.training = true});
}

void add_resnet(Programs& p, const std::string& name, DType dtype) {
  const Sizes depths = p.size(0, 1) ? Sizes{1, 2} : Sizes{3, 4, 6, 3};
  const std::int64_t stem = p.size(64, 8), classes = p.size(1000, 10);
  Weights w(dtype);
  w.convolution(stem, 3, 7);
  w.norm(stem);
  std::int64_t in = stem;
  for (std::size_t stage = 0; stage < depths.size(); ++stage)
    for (std::int64_t block = 0; block < depths[stage]; ++block) {
      const std::int64_t mid = stem << stage, out = 4 * mid;
      w.convolution(mid, in, 1);
      w.norm(mid);
      w.convolution(mid, mid, 3);
      w.norm(mid);
      w.convolution(out, mid, 1);
      w.norm(out, 0.2); // small at first, as Goyal et al. 2017 have it: residuals grow slowly
      if (block == 0) {
        w.convolution(out, in, 1);
        w.norm(out);
      }
      in = out;
    }
  w.matrix(classes, in);
  const std::int64_t side = p.size(224, 32);
  add_network(p, name, data({p.size(32, 2), 3, side, side}, dtype), classes, w.list,
              [depths](Reader& r, const Tensor& x) {
                Tensor h = conv2d(x, r.next(), {}, {.stride = 2, .padding = 3});
                h = max_pool2d(relu(batch_normalized(r, h)), 3, {.stride = 2, .padding = 1});
                for (std::size_t stage = 0; stage < depths.size(); ++stage)
                  for (std::int64_t block = 0; block < depths[stage]; ++block) {
                    const int stride = stage > 0 && block == 0 ? 2 : 1;
                    Tensor y = relu(batch_normalized(r, conv2d(h, r.next())));
                    y = conv2d(y, r.next(), {}, {.stride = stride, .padding = 1});
                    y = relu(batch_normalized(r, y));
                    y = batch_normalized(r, conv2d(y, r.next()));
                    if (block == 0)
                      h = batch_normalized(r, conv2d(h, r.next(), {}, {.stride = stride}));
                    h = relu(h + y);
                  }
                return r.dense(h.mean({2, 3}));
              });
}

void add_convnext(Programs& p, const std::string& name, DType dtype) {
  const Sizes depths = p.size(0, 1) ? Sizes{1, 1} : Sizes{3, 3, 9, 3};
  const std::int64_t first = p.size(96, 8), classes = p.size(1000, 10);
  Weights w(dtype);
  w.convolution(first, 3, 4);
  w.vector({first}, 0.1);
  w.norm(first);
  std::int64_t d = first;
  for (std::size_t stage = 0; stage < depths.size(); ++stage) {
    if (stage > 0) {
      w.norm(d);
      w.convolution(2 * d, d, 2);
      d *= 2;
      w.vector({d}, 0.1);
    }
    for (std::int64_t block = 0; block < depths[stage]; ++block) {
      w.convolution(d, 1, 7);
      w.vector({d}, 0.1);
      w.norm(d);
      w.matrix(4 * d, d);
      w.matrix(d, 4 * d);
      w.vector({d}, 0.5);
    }
  }
  w.norm(d);
  w.matrix(classes, d);
  const std::int64_t side = p.size(224, 32);
  add_network(p, name, data({p.size(32, 2), 3, side, side}, dtype), classes, w.list,
              [depths](Reader& r, const Tensor& x) {
                const auto last = [](const Tensor& y) { return y.permute({0, 2, 3, 1}); };
                const auto channels = [](const Tensor& y) { return y.permute({0, 3, 1, 2}); };
                const auto convolved = [&](const Tensor& y, int stride) {
                  const Tensor& weights = r.next();
                  return conv2d(y, weights, r.next(), {.stride = stride});
                };
                Tensor h = channels(r.normalized(last(convolved(x, 4)), 1e-6));
                for (std::size_t stage = 0; stage < depths.size(); ++stage) {
                  if (stage > 0) {
                    h = channels(r.normalized(last(h), 1e-6));
                    h = convolved(h, 2);
                  }
                  for (std::int64_t block = 0; block < depths[stage]; ++block) {
                    const Tensor& taps = r.next();
                    Tensor y = conv2d(h, taps, r.next(), {.padding = 3, .groups = h.size(1)});
                    y = r.normalized(last(y), 1e-6);
                    y = gelu(r.dense(y));
                    y = r.dense(y);
                    h = h + channels(y * r.next());
                  }
                }
                return r.dense(r.normalized(h.mean({2, 3}), 1e-6));
              });
}

// --- transformers

struct Encoder {
  std::int64_t layers, width, heads, hidden;
};

void encoder_weights(Weights& w, const Encoder& e) {
  for (std::int64_t i = 0; i < e.layers; ++i) {
    w.norm(e.width);
    w.matrix(3 * e.width, e.width);
    w.matrix(e.width, e.width);
    w.norm(e.width);
    w.matrix(e.hidden, e.width);
    w.matrix(e.width, e.hidden);
  }
}

/// Attention of all places to all, heads of width / heads.
Tensor attended(Reader& r, const Tensor& x, std::int64_t heads) {
  const std::int64_t b = x.size(0), n = x.size(1), d = x.size(2);
  const Tensor qkv = r.dense(x).reshape({b, n, 3, heads, d / heads}).permute({2, 0, 3, 1, 4});
  const Tensor y =
      scaled_dot_product_attention(qkv.select(0, 0), qkv.select(0, 1), qkv.select(0, 2));
  return r.dense(y.permute({0, 2, 1, 3}).reshape({b, n, d}));
}

/// Layers with normalization first.
Tensor encoded(Reader& r, Tensor h, const Encoder& e) {
  for (std::int64_t i = 0; i < e.layers; ++i) {
    const Tensor y = r.normalized(h);
    h = h + attended(r, y, e.heads);
    const Tensor z = gelu(r.dense(r.normalized(h)));
    h = h + r.dense(z);
  }
  return h;
}

/// ViT-B/16 (Dosovitskiy et al. 2021).
void add_vit(Programs& p, const std::string& name, DType dtype) {
  const Encoder e{p.size(12, 2), p.size(768, 24), p.size(12, 3), p.size(3072, 48)};
  const std::int64_t side = p.size(224, 24), patch = p.size(16, 8), classes = p.size(1000, 10);
  const std::int64_t places = (side / patch) * (side / patch) + 1;
  Weights w(dtype);
  w.convolution(e.width, 3, patch);
  w.vector({e.width}, 0.1);
  w.vector({1, 1, e.width}, 0.1);
  w.vector({places, e.width}, 0.1);
  encoder_weights(w, e);
  w.norm(e.width);
  w.matrix(classes, e.width);
  add_network(p, name, data({p.size(32, 2), 3, side, side}, dtype), classes, w.list,
              [e, patch](Reader& r, const Tensor& x) {
                const Tensor& weights = r.next();
                Tensor h = conv2d(x, weights, r.next(), {.stride = patch});
                h = h.reshape({h.size(0), e.width, -1}).transpose(1, 2);
                h = cat({r.next().expand({h.size(0), 1, e.width}), h}, 1);
                h = encoded(r, h + r.next(), e);
                return r.dense(r.normalized(h.select(1, 0)));
              });
}

/// BERT-base (Devlin et al. 2019), normalization behind; classified by its first place.
void add_bert(Programs& p, const std::string& name, DType dtype) {
  const Encoder e{p.size(12, 2), p.size(768, 24), p.size(12, 3), p.size(3072, 48)};
  const std::int64_t n = p.size(128, 10), words = p.size(30522, 50), classes = 2;
  Weights w(dtype);
  w.vector({words, e.width}, 0.5);
  w.vector({n, e.width}, 0.5);
  w.norm(e.width);
  for (std::int64_t i = 0; i < e.layers; ++i) {
    w.matrix(3 * e.width, e.width);
    w.matrix(e.width, e.width);
    w.norm(e.width);
    w.matrix(e.hidden, e.width);
    w.matrix(e.width, e.hidden);
    w.norm(e.width);
  }
  w.matrix(e.width, e.width);
  w.matrix(classes, e.width);
  add_network(p, name, whole({p.size(32, 2), n}, words), classes, w.list,
              [e](Reader& r, const Tensor& x) {
                Tensor h = embedding(r.next(), x);
                h = r.normalized(h + r.next());
                for (std::int64_t i = 0; i < e.layers; ++i) {
                  const Tensor y = attended(r, h, e.heads);
                  h = r.normalized(h + y);
                  const Tensor z = gelu(r.dense(h));
                  const Tensor u = r.dense(z);
                  h = r.normalized(h + u);
                }
                return r.dense(tanh(r.dense(h.select(1, 0))));
              });
}

/// The encoder of Whisper-base (Radford et al. 2022) over 30 s, its mean classified.
void add_whisper(Programs& p, const std::string& name, DType dtype) {
  const Encoder e{p.size(6, 2), p.size(512, 24), p.size(8, 3), p.size(2048, 48)};
  const std::int64_t frames = p.size(3000, 18), mels = p.size(80, 6), classes = p.size(99, 7);
  Weights w(dtype);
  for (const std::int64_t in : {mels, e.width}) {
    w.list.push_back(weight({e.width, in, 3}, 3 * in, dtype));
    w.vector({e.width}, 0.1);
  }
  w.vector({frames / 2, e.width}, 0.1);
  encoder_weights(w, e);
  w.norm(e.width);
  w.matrix(classes, e.width);
  add_network(p, name, data({p.size(8, 2), mels, frames}, dtype), classes, w.list,
              [e](Reader& r, const Tensor& x) {
                Tensor h = x;
                for (const int stride : {1, 2}) {
                  const Tensor& weights = r.next();
                  h = gelu(conv1d(h, weights, r.next(), {.stride = stride, .padding = 1}));
                }
                h = encoded(r, h.transpose(1, 2) + r.next(), e);
                return r.dense(r.normalized(h).mean({1}));
              });
}

/// One level of a diffusion model's U-Net (Ho, Jain and Abbeel 2020): two convolutions with group
/// normalization and a time embedding between them, then attention over all pixels.
void add_denoiser(Programs& p, const std::string& name, DType dtype) {
  const std::int64_t c = p.size(256, 8), groups = p.size(32, 2), side = p.size(32, 6),
                     classes = p.size(1000, 10);
  Weights w(dtype);
  w.norm(c);
  w.convolution(c, c, 3);
  w.vector({1, c, 1, 1}, 0.5);
  w.norm(c);
  w.convolution(c, c, 3);
  w.norm(c);
  w.matrix(3 * c, c);
  w.matrix(c, c);
  w.matrix(classes, c);
  add_network(p, name, data({p.size(16, 2), c, side, side}, dtype), classes, w.list,
              [groups](Reader& r, const Tensor& x) {
                const auto grouped = [&](const Tensor& y) {
                  const Tensor& scale = r.next();
                  return group_norm(y, groups, scale, r.next());
                };
                Tensor h = silu(grouped(x));
                h = conv2d(h, r.next(), {}, {.padding = 1});
                h = silu(grouped(h + r.next()));
                h = x + conv2d(h, r.next(), {}, {.padding = 1});
                Tensor y = grouped(h);
                y = attended(r, y.reshape({y.size(0), y.size(1), -1}).transpose(1, 2), 4);
                h = h + y.transpose(1, 2).reshape(h.shape());
                return r.dense(h.mean({2, 3}));
              });
}

} // namespace

void add_backbones(Programs& p) {
  for (const auto& [suffix, dtype] : {std::pair{"", DType::F32}, {"_bf16", DType::BF16}}) {
    add_resnet(p, std::string("backbone/resnet50") + suffix, dtype);
    add_convnext(p, std::string("backbone/convnext_tiny") + suffix, dtype);
    add_vit(p, std::string("backbone/vit_b16") + suffix, dtype);
    add_bert(p, std::string("backbone/bert_base") + suffix, dtype);
    add_whisper(p, std::string("backbone/whisper_base") + suffix, dtype);
    add_denoiser(p, std::string("backbone/denoiser") + suffix, dtype);
  }
}

} // namespace egret::programs
