#include "models/vision/image_folder.h"

#include "io/json_file.h"
#include "models/keys.h"
#include "support/fail.h"
#include "support/overloaded.h"
#include "support/path_status.h"
#include "support/printable.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace egret::models::vision {

namespace {

using nlohmann::json;

constexpr std::int64_t kMost = 1 << 20; // of any size

struct ResNetRow {
  const char* name;
  std::array<std::int64_t, 4> blocks;
  bool bottleneck = true;
  std::int64_t groups = 1, group_width = 64;
};
constexpr std::array kResNets = {
    ResNetRow{"resnet18", {2, 2, 2, 2}, false},
    ResNetRow{"resnet34", {3, 4, 6, 3}, false},
    ResNetRow{"resnet26", {2, 2, 2, 2}},
    ResNetRow{"resnet50", {3, 4, 6, 3}},
    ResNetRow{"resnet101", {3, 4, 23, 3}},
    ResNetRow{"resnet152", {3, 8, 36, 3}},
    ResNetRow{"wide_resnet50_2", {3, 4, 6, 3}, true, 1, 128},
    ResNetRow{"wide_resnet101_2", {3, 4, 23, 3}, true, 1, 128},
    ResNetRow{"resnext50_32x4d", {3, 4, 6, 3}, true, 32, 4},
    ResNetRow{"resnext101_32x8d", {3, 4, 23, 3}, true, 32, 8},
};

struct ConvNextRow {
  const char* name; ///< behind "convnext_" or "convnextv2_"
  std::array<std::int64_t, 4> depths;
  std::int64_t width; ///< of the first stage; each next one has twice as many
  bool spatial = false;
};
constexpr std::array kConvNexts = {
    ConvNextRow{"atto", {2, 2, 6, 2}, 40, true},  ConvNextRow{"femto", {2, 2, 6, 2}, 48, true},
    ConvNextRow{"pico", {2, 2, 6, 2}, 64, true},  ConvNextRow{"nano", {2, 2, 8, 2}, 80, true},
    ConvNextRow{"tiny", {3, 3, 9, 3}, 96},        ConvNextRow{"small", {3, 3, 27, 3}, 96},
    ConvNextRow{"base", {3, 3, 27, 3}, 128},      ConvNextRow{"large", {3, 3, 27, 3}, 192},
    ConvNextRow{"xlarge", {3, 3, 27, 3}, 256},    ConvNextRow{"huge", {3, 3, 27, 3}, 352},
    ConvNextRow{"large_mlp", {3, 3, 27, 3}, 192},
};

struct VisionRow {
  const char* name; ///< between "vit_" and "_patch"
  std::int64_t features, layers, heads;
};
constexpr std::array kVisions = {
    VisionRow{"tiny", 192, 12, 3},
    VisionRow{"small", 384, 12, 6},
    VisionRow{"base", 768, 12, 12},
    VisionRow{"large", 1024, 24, 16},
};

template <class Rows>
auto row_named(const Rows& rows, std::string_view name) {
  const auto found = std::ranges::find_if(rows, [&](const auto& row) { return row.name == name; });
  return found == rows.end() ? nullptr : &*found;
}

/// "vit_base_patch16_224" as its row, patch and size of images; nothing for other names.
struct VisionName {
  const VisionRow* row;
  std::int64_t patch, size;
};
std::optional<VisionName> vision_named(std::string_view name) {
  const std::size_t at = name.find("_patch");
  if (!name.starts_with("vit_") || at == std::string_view::npos)
    return {};
  VisionName found{row_named(kVisions, name.substr(4, at - 4)), 0, 0};
  const char *next = name.data() + at + 6, *end = name.data() + name.size();
  for (std::int64_t* number : {&found.patch, &found.size}) {
    const auto [behind, error] = std::from_chars(next, end, *number);
    if (error != std::errc() || *number < 1 || *number > kMost)
      return {};
    next = behind;
    if (number == &found.patch && (next == end || *next++ != '_'))
      return {};
  }
  return found.row != nullptr && next == end ? std::optional(found) : std::nullopt;
}

std::vector<std::int64_t> sizes(Keys& keys, const char* name, std::vector<std::int64_t> otherwise,
                                std::size_t count) {
  if (!keys.has({name}))
    return otherwise;
  std::vector<std::int64_t> values;
  for (const double x : keys.numbers({name})) {
    if (x != std::floor(x) || x < 1 || x > static_cast<double>(kMost))
      fail(ErrorKind::File, "{}: '{}' has {}, no size from 1 to {}", keys.where(), name, x, kMost);
    values.push_back(static_cast<std::int64_t>(x));
  }
  if (values.size() != count)
    fail(ErrorKind::File, "{}: '{}' has {} sizes, not {}", keys.where(), name, values.size(),
         count);
  return values;
}

std::array<double, 3> three(Keys& keys, const char* name, std::array<double, 3> otherwise) {
  const std::vector<double> values = keys.numbers({name});
  if (values.empty())
    return otherwise;
  if (values.size() != 3)
    fail(ErrorKind::File, "{}: '{}' has {} numbers; there are 3 channels", keys.where(), name,
         values.size());
  return {values[0], values[1], values[2]};
}

void require_deviation(const ImageConfig& c, const std::string& where) {
  for (const double x : c.deviation)
    if (!(x > 0))
      fail(ErrorKind::File, "{}: a deviation of {}; it must be above 0", where, x);
}

/// What timm writes of the images that a network was trained with.
void read_images_of_timm(Keys& keys, ImageConfig& c) {
  constexpr std::array<double, 3> kMean = {0.485, 0.456, 0.406}, kDeviation = {0.229, 0.224, 0.225};
  const auto size = sizes(keys, "input_size", {3, c.height, c.width}, 3);
  if (size[0] != 3)
    fail(ErrorKind::Unsupported, "{}: 'input_size': images of {} channels; 3 are known",
         keys.where(), size[0]);
  c.height = size[1];
  c.width = size[2];
  c.mean = three(keys, "mean", kMean);
  c.deviation = three(keys, "std", kDeviation);
  const std::string mode = keys.text({"crop_mode"}, "center");
  if (mode != "center" && mode != "squash")
    fail(ErrorKind::Unsupported,
         "{}: 'crop_mode': egret does not know '{}'; it knows center, squash", keys.where(),
         printable(mode));
  if (mode == "center")
    c.crop = keys.number({"crop_pct"}, 0.01, 1, 0.875);
  const std::string kind = keys.text({"interpolation"}, "bicubic");
  if (kind != "bicubic" && kind != "bilinear")
    fail(ErrorKind::Unsupported,
         "{}: 'interpolation': egret does not know '{}'; it knows bicubic, bilinear", keys.where(),
         printable(kind));
  c.interpolation = kind == "bicubic" ? Interpolation::Cubic : Interpolation::Linear;
  require_deviation(c, keys.where());
}

/// preprocessor_config.json of transformers.
void read_images_of_transformers(const std::filesystem::path& folder, ImageConfig& c) {
  const std::filesystem::path path = folder / "preprocessor_config.json";
  if (!path_exists(path))
    return;
  Keys keys(io::read_json_object(path), path.string());
  c.mean = three(keys, "image_mean", c.mean);
  c.deviation = three(keys, "image_std", c.deviation);
  const std::int64_t kind = keys.integer({"resample"}, 0, 5, 2);
  if (kind != 2 && kind != 3)
    fail(ErrorKind::Unsupported, "{}: 'resample': egret knows 2 (bilinear) and 3 (bicubic), not {}",
         path.string(), kind);
  c.interpolation = kind == 3 ? Interpolation::Cubic : Interpolation::Linear;
  require_deviation(c, path.string());
}

std::vector<std::string> labels_of(Keys& keys, std::int64_t classes) {
  std::vector<std::string> labels;
  if (const json* names = keys.find({"label_names"}); names != nullptr && names->is_array())
    for (const json& name : *names)
      labels.push_back(name.is_string() ? name.get<std::string>() : shown(name));
  if (const json* names = keys.find({"id2label"}); names != nullptr && names->is_object())
    for (std::int64_t i = 0; i < classes; ++i) {
      const auto at = names->find(std::to_string(i));
      labels.push_back(at != names->end() && at->is_string() ? at->get<std::string>() : "");
    }
  if (const json* texts = keys.find({"label_descriptions"}); texts != nullptr && texts->is_object())
    for (std::string& label : labels)
      if (const auto at = texts->find(label); at != texts->end() && at->is_string())
        label = at->get<std::string>();
  if (std::ssize(labels) != classes)
    labels.clear();
  return labels;
}

void require_known(const std::string& where, const std::string& name) {
  const auto is = [&](const std::string& one) {
    return one == name || (one.ends_with("_patchN_M") && vision_named(name));
  };
  if (std::ranges::any_of(known_images(), is))
    return;
  fail(ErrorKind::Unsupported, "{}: egret does not know the image model '{}'; it knows {}", where,
       printable(name), fmt::join(known_images(), ", "));
}

ImageFolder read_timm(Keys& keys, const std::string& name,
                      const std::vector<std::string>& ignored) {
  ImageFolder f;
  ImageConfig& c = f.config;
  c.architecture = name;
  require_known(keys.where(), name);
  c.classes = keys.integer({"num_classes"}, 1, kMost);
  Keys arguments = keys.object({"model_args"});
  std::string pooling = "avg";
  if (const ResNetRow* row = row_named(kResNets, name)) {
    ResNetOptions o{.classes = c.classes,
                    .stem = 64,
                    .bottleneck = row->bottleneck,
                    .groups = row->groups,
                    .group_width = row->group_width};
    o.blocks = sizes(arguments, "layers", {row->blocks.begin(), row->blocks.end()}, 4);
    o.widths = sizes(arguments, "channels", {64, 128, 256, 512}, 4);
    for (const std::int64_t width : o.widths)
      if (o.bottleneck && width * o.group_width < 64)
        fail(ErrorKind::File, "{}: a width of {} is too small for groups of {}", arguments.where(),
             width, o.group_width);
    f.network = o;
  } else if (name.starts_with("convnext")) {
    const bool second = name.starts_with("convnextv2_");
    const ConvNextRow* next = row_named(kConvNexts, name.substr(name.find('_') + 1));
    ConvNextOptions o{.classes = c.classes, .spatial = next->spatial, .response_norm = second};
    o.depths = sizes(arguments, "depths", {next->depths.begin(), next->depths.end()}, 4);
    const std::int64_t w = next->width;
    o.widths = sizes(arguments, "dims", {w, 2 * w, 4 * w, 8 * w}, 4);
    if (name.ends_with("_mlp"))
      o.head_hidden = arguments.integer({"head_hidden_size"}, 1, kMost, o.widths.back());
    f.network = o;
  } else {
    const auto vision = vision_named(name);
    pooling = "token";
    c.height = c.width = arguments.integer({"img_size"}, 1, kMost, vision->size);
    VisionOptions o{.patch = vision->patch, .classes = c.classes};
    o.features = arguments.integer({"embed_dim"}, 1, kMost, vision->row->features);
    o.layers = arguments.integer({"depth"}, 1, 4096, vision->row->layers);
    o.heads = arguments.integer({"num_heads"}, 1, kMost, vision->row->heads);
    o.hidden = 4 * o.features;
    f.network = o;
  }
  // The image's size decides how many patches there are; small networks say it in the arguments.
  Keys images = keys.object({"pretrained_cfg"});
  const std::int64_t said = c.height;
  read_images_of_timm(images, c);
  if (arguments.has({"img_size"}))
    c.height = c.width = said;
  if (auto* o = std::get_if<VisionOptions>(&f.network)) {
    o->height = c.height;
    o->width = c.width;
  }
  arguments.require_all_read(ignored);
  if (const std::string how = keys.text({"global_pool"}, pooling);
      how != pooling && !std::holds_alternative<VisionOptions>(f.network))
    fail(ErrorKind::Unsupported, "{}: 'global_pool' is '{}'; egret knows {} for {}", keys.where(),
         printable(how), pooling, name);
  for (const char* key : {"num_features", "architecture"})
    keys.find({key});
  c.labels = labels_of(keys, c.classes);
  return f;
}

ImageFolder read_vit(Keys& keys, const std::filesystem::path& folder) {
  ImageFolder f{.of_transformers = true};
  ImageConfig& c = f.config;
  c.architecture = "vit";
  const auto side = [&](const char* name, std::int64_t otherwise) {
    return keys.integer({name}, 1, kMost, otherwise);
  };
  VisionOptions o;
  o.features = side("hidden_size", 768);
  o.layers = keys.integer({"num_hidden_layers"}, 1, 4096, 12);
  o.heads = side("num_attention_heads", 12);
  o.hidden = side("intermediate_size", 3072);
  o.height = o.width = c.height = c.width = side("image_size", 224);
  o.patch = side("patch_size", 16);
  o.norm_eps = keys.number({"layer_norm_eps"}, 0, 1, 1e-12);
  o.activation = activation_named(keys.text({"hidden_act"}, "gelu"), keys.where());
  o.qkv_bias = keys.flag({"qkv_bias"}, true);
  if (const std::int64_t channels = side("num_channels", 3); channels != 3)
    fail(ErrorKind::Unsupported, "{}: 'num_channels' is {}; 3 are known", keys.where(), channels);
  const json* names = keys.find({"id2label"});
  c.classes = o.classes = names != nullptr && names->is_object()
                              ? std::max<std::int64_t>(std::ssize(*names), 1)
                              : keys.integer({"num_labels"}, 1, kMost, 2);
  for (const char* key :
       {"architectures", "model_type", "transformers_version", "initializer_range", "dtype",
        "torch_dtype", "_name_or_path", "attention_probs_dropout_prob", "hidden_dropout_prob",
        "encoder_stride", "label2id", "pooler_act", "pooler_output_size", "problem_type"})
    keys.find({key});
  c.labels = labels_of(keys, c.classes);
  read_images_of_transformers(folder, c);
  f.network = o;
  return f;
}

void require_sizes(const ImageFolder& f, const std::string& where) {
  const auto* o = std::get_if<VisionOptions>(&f.network);
  if (o == nullptr)
    return;
  if (o->features % o->heads != 0)
    fail(ErrorKind::File, "{}: {} heads do not divide a width of {}", where, o->heads, o->features);
  if (o->height < o->patch || o->width < o->patch)
    fail(ErrorKind::File, "{}: patches of {} are larger than images of {} x {}", where, o->patch,
         o->height, o->width);
}

} // namespace

ImageFolder read_image_folder(const std::filesystem::path& folder,
                              const std::vector<std::string>& ignored) {
  const std::filesystem::path path = folder / "config.json";
  Keys keys(io::read_json_object(path), path.string());
  const std::string name = keys.text({"architecture", "model_type"});
  ImageFolder f = name == "vit" ? read_vit(keys, folder) : read_timm(keys, name, ignored);
  keys.require_all_read(ignored);
  require_sizes(f, path.string());
  return f;
}

std::vector<std::string> known_images() {
  std::vector<std::string> names = {"vit"};
  for (const VisionRow& row : kVisions)
    names.push_back(fmt::format("vit_{}_patchN_M", row.name));
  for (const ResNetRow& row : kResNets)
    names.emplace_back(row.name);
  for (const ConvNextRow& row : kConvNexts)
    names.push_back(fmt::format("convnext_{}", row.name));
  for (const ConvNextRow& row : kConvNexts)
    if (std::string_view(row.name) != "large_mlp" && std::string_view(row.name) != "xlarge")
      names.push_back(fmt::format("convnextv2_{}", row.name));
  return names;
}

} // namespace egret::models::vision
