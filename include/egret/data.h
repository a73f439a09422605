// Data: batches of examples in a shuffled order, characters as numbers, and the digits of the MNIST
// files.
#pragma once

#include "egret/tensor.h"

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace egret::data {

struct LoaderOptions {
  std::int64_t batch = 32;
  bool shuffle = true;
  std::uint64_t seed = 0; ///< the order of epoch e depends on seed and e only, on every machine
  bool drop_last = false; ///< leave out a last batch that is not full
};

/// Examples in batches. The fields are tensors whose first axes are equally long (images, labels
/// ...): example i is row i of each.
///
///   data::Loader loader({images, labels}, {.batch = 64});
///   for (std::int64_t epoch = 0; epoch < 10; ++epoch)
///     for (auto& batch : loader.epoch(epoch))
///       train(batch[0], batch[1]);
class Loader {
public:
  /// Reads the fields. Error(Shape) when their first axes differ, Error(Value) for a batch that is
  /// not positive.
  Loader(const std::vector<Tensor>& fields, const LoaderOptions& options = {});

  std::int64_t examples() const noexcept { return examples_; }
  std::int64_t batches() const noexcept; ///< of one epoch
  /// The examples' numbers in the order of an epoch.
  std::vector<std::int64_t> order(std::int64_t epoch) const;
  /// The rows with these numbers, one tensor a field.
  std::vector<Tensor> rows(std::span<const std::int64_t> numbers) const;
  /// The rows of one batch of an epoch with this order.
  std::vector<Tensor> batch(std::span<const std::int64_t> order, std::int64_t number) const;

  /// The batches of one epoch, made as they are asked for.
  class Epoch {
  public:
    class Iterator {
    public:
      Iterator(const Epoch* epoch, std::int64_t batch) : epoch_(epoch), batch_(batch) {}
      const std::vector<Tensor>& operator*();
      Iterator& operator++();
      bool operator==(const Iterator& other) const noexcept { return batch_ == other.batch_; }

    private:
      const Epoch* epoch_;
      std::int64_t batch_;
      std::vector<Tensor> rows_;
    };
    Iterator begin() const { return {this, 0}; }
    Iterator end() const { return {this, loader_->batches()}; }

  private:
    friend class Loader;
    Epoch(const Loader& loader, std::int64_t number)
        : loader_(&loader), order_(loader.order(number)) {}
    const Loader* loader_;
    std::vector<std::int64_t> order_;
  };
  Epoch epoch(std::int64_t number) const { return {*this, number}; }

private:
  struct Field {
    DType dtype;
    std::vector<std::int64_t> shape; ///< of one example
    std::vector<std::byte> bytes;
    std::size_t row_bytes;
  };
  std::vector<Field> fields_;
  std::int64_t examples_ = 0;
  LoaderOptions options_;
};

/// 0, 1 ... n-1 in an order that depends on the seed only (Fisher and Yates, with numbers of
/// splitmix64).
std::vector<std::int64_t> permutation(std::int64_t n, std::uint64_t seed);

/// Characters as numbers, without a tokenizer: character i of the alphabet is i.
class CharCodec {
public:
  /// Error(Value) when a character is there twice.
  explicit CharCodec(std::string_view alphabet);
  /// The characters that occur in `text`, in the order of their codes.
  static CharCodec of_text(std::string_view text);

  std::int64_t size() const noexcept { return static_cast<std::int64_t>(alphabet_.size()); }
  const std::string& alphabet() const noexcept { return alphabet_; }
  std::int64_t
  encode(char c) const; ///< Error(Value) naming a character that is not in the alphabet
  std::vector<std::int64_t> encode(std::string_view text) const;
  std::string
  decode(std::span<const std::int64_t> numbers) const; ///< Error(Index) for a number outside

private:
  std::string alphabet_;
  std::int16_t number_[256];
};

/// Handwritten digits.
struct Digits {
  Tensor images; ///< f32 [n, 28, 28] in 0..1
  Tensor labels; ///< i64 [n]
  std::int64_t size() const { return images.size(0); }
};

/// Reads <prefix>-images-idx3-ubyte and <prefix>-labels-idx1-ubyte, plain or .gz, from a folder;
/// `prefix` is "train" or "t10k". Error(File) when they are not there, do not fit each other or
/// hold labels above 9.
Digits load_digits(const std::filesystem::path& folder, std::string_view prefix);

} // namespace egret::data
