// A growable array of plain values for the big tables: it moves to huge pages when it gets large,
// and from there on grows by remapping, so that growing copies nothing and random reads miss the
// page tables' cache less.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <new>
#include <type_traits>
#include <utility>

namespace egret::egraph {

/// Uninitialised storage of at least `bytes` bytes, which is made larger in place or moved; the
/// first `used` bytes are kept. `capacity` is that of `old` and becomes the new one. Throws
/// std::bad_alloc.
void* grow_storage(void* old, std::size_t used, std::size_t& capacity, std::size_t bytes);
void free_storage(void* storage, std::size_t capacity) noexcept;

template <class T>
class Words {
  static_assert(std::is_trivially_copyable_v<T>);

public:
  Words() = default;
  Words(const Words& other) { *this = other; }
  Words(Words&& other) noexcept { swap(other); }
  Words& operator=(const Words& other) {
    if (this != &other) {
      size_ = 0;
      reserve(other.size_);
      if (other.size_ != 0)
        std::memcpy(static_cast<void*>(data_), other.data_, other.size_ * sizeof(T));
      size_ = other.size_;
    }
    return *this;
  }
  Words& operator=(Words&& other) noexcept {
    Words(std::move(other)).swap(*this);
    return *this;
  }
  ~Words() { free_storage(data_, bytes_); }
  void swap(Words& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(room_, other.room_);
    std::swap(bytes_, other.bytes_);
  }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& back() { return data_[size_ - 1]; }
  const T& back() const { return data_[size_ - 1]; }

  void push_back(T value) {
    if (size_ == room_)
      reserve(size_ + 1);
    data_[size_++] = value;
  }
  /// Makes room for `count` elements in all.
  void reserve(std::size_t count) {
    if (count <= room_)
      return;
    std::size_t least = std::max<std::size_t>({count, room_ * 2, 16});
    data_ = static_cast<T*>(grow_storage(data_, size_ * sizeof(T), bytes_, least * sizeof(T)));
    room_ = bytes_ / sizeof(T);
  }
  /// New elements are zero.
  void resize(std::size_t count) {
    reserve(count);
    if (count > size_)
      std::memset(static_cast<void*>(data_ + size_), 0, (count - size_) * sizeof(T));
    size_ = count;
  }
  /// New elements are not set.
  void resize_raw(std::size_t count) {
    reserve(count);
    size_ = count;
  }
  void assign(std::size_t count, T value) {
    size_ = 0;
    reserve(count);
    std::fill(data_, data_ + count, value);
    size_ = count;
  }
  void append(const Words& other) {
    if (other.size_ == 0)
      return;
    reserve(size_ + other.size_);
    std::memcpy(static_cast<void*>(data_ + size_), other.data_, other.size_ * sizeof(T));
    size_ += other.size_;
  }
  void clear() { size_ = 0; }
  /// What the elements take; room that was never touched takes nothing.
  std::size_t bytes() const { return size_ * sizeof(T); }

private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t room_ = 0;  ///< in elements
  std::size_t bytes_ = 0; ///< of the storage
};

} // namespace egret::egraph
