#include "backend/reference/library_product.h"

#include "backend/reference/number.h"

#include <cmath>

namespace egret::backend::reference {

namespace {

using kernel::LibraryProduct;

/// A buffer of the program with the matrix that lies in it.
class View {
public:
  View(const kernel::KernelProgram& program, const kernel::ArgBlock& block, int buffer)
      : type_(program.buffers[static_cast<std::size_t>(buffer)].dtype),
        memory_(static_cast<std::byte*>(
            block.pointers[program.buffers[static_cast<std::size_t>(buffer)].argument])) {}
  double at(std::int64_t element) const { return read_number(type_, place(element)).f; }
  void set(std::int64_t element, double value) const {
    write_number(type_, {.f = value}, place(element));
  }

private:
  std::byte* place(std::int64_t element) const {
    return memory_ + static_cast<std::size_t>(element) * size_of(type_);
  }
  DType type_;
  std::byte* memory_;
};

double activated(LibraryProduct::Activation activation, double x) {
  switch (activation) {
  case LibraryProduct::Activation::None:
    return x;
  case LibraryProduct::Activation::Relu:
    return std::isnan(x) ? x : std::fmax(x, 0.0);
  case LibraryProduct::Activation::Gelu:
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  }
  return x;
}

} // namespace

void make_product(const kernel::KernelProgram& program, const kernel::ArgBlock& block) {
  const LibraryProduct& p = *program.product;
  const View left(program, block, p.left.buffer), right(program, block, p.right.buffer),
      result(program, block, p.result.buffer);
  const auto place = [](const LibraryProduct::Matrix& m, std::int64_t b, std::int64_t row,
                        std::int64_t column) {
    return m.offset + b * m.batch + row * m.row + column * m.column;
  };
  for (std::int64_t b = 0; b < p.batches; ++b)
    for (std::int64_t i = 0; i < p.rows; ++i)
      for (std::int64_t j = 0; j < p.columns; ++j) {
        double sum = 0;
        for (std::int64_t k = 0; k < p.depth; ++k)
          sum += left.at(place(p.left, b, i, k)) * right.at(place(p.right, b, j, k));
        sum = static_cast<float>(sum);
        if (p.bias >= 0)
          sum += View(program, block, p.bias).at(p.bias_offset + j);
        result.set(place(p.result, b, i, j), activated(p.activation, sum));
      }
}

} // namespace egret::backend::reference
