#include "onnx/protobuf.h"

namespace egret::onnx {

namespace {

enum WireType : unsigned { kVarint = 0, kLength = 2 };

} // namespace

void Message::varint(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7)
    data_.push_back(static_cast<char>(value | 0x80));
  data_.push_back(static_cast<char>(value));
}

void Message::tag(int field, unsigned wire_type) {
  varint(static_cast<std::uint64_t>(field) << 3 | wire_type);
}

void Message::number(int field, std::int64_t value) {
  tag(field, kVarint);
  varint(static_cast<std::uint64_t>(value));
}

void Message::text(int field, std::string_view value) {
  tag(field, kLength);
  varint(value.size());
  data_.append(value);
}

void Message::bytes(int field, std::span<const std::byte> value) {
  text(field, {reinterpret_cast<const char*>(value.data()), value.size()});
}

} // namespace egret::onnx
