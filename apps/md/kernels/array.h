// A growing array of plain values: 64-byte aligned, new elements uninitialised, about a sixteenth of it spare.
// std::vector initialises elements that the next loop overwrites, and doubles its size: both cost noticeably at a
// million atoms.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

namespace md {

template <class T>
class Array {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Array() = default;
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  Array(Array&& other) noexcept { swap(other); }
  Array& operator=(Array&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Array() { release(data_, capacity_); }

  void swap(Array& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

  // Keeps existing elements; new ones are uninitialised.
  void resize(std::size_t size) {
    if (size > capacity_) grow(size);
    size_ = size;
  }
  void append(const T& value) {
    const T copy = value;  // it may refer to an element of this array
    resize(size_ + 1);
    data_[size_ - 1] = copy;
  }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::size_t capacity() const { return capacity_; }  // until a larger size the elements stay in place
  [[nodiscard]] T* data() { return data_; }
  [[nodiscard]] const T* data() const { return data_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  [[nodiscard]] const T* begin() const { return data_; }
  [[nodiscard]] const T* end() const { return data_ + size_; }

 private:
  static constexpr std::size_t alignment = 64;
  // From this size on an array has pages of its own: it grows without a copy, and uses large pages.
  static constexpr std::size_t pages_from = std::size_t{1} << 20;

  static std::size_t bytes_of(std::size_t capacity) {
    const std::size_t unit = capacity * sizeof(T) < pages_from ? alignment : std::size_t{1} << 16;
    return (capacity * sizeof(T) + unit - 1) / unit * unit;
  }

  static void release(T* data, std::size_t capacity) {
    if (data == nullptr) return;
    if (bytes_of(capacity) < pages_from)
      std::free(data);
    else
      ::munmap(data, bytes_of(capacity));
  }

  void grow(std::size_t size) {
    const std::size_t capacity = bytes_of(size + size / 16 + 16) / sizeof(T);
    const std::size_t before = data_ == nullptr ? 0 : bytes_of(capacity_), bytes = bytes_of(capacity);
    T* data = nullptr;
    if (bytes < pages_from) {
      data = static_cast<T*>(std::aligned_alloc(alignment, bytes));
      if (data == nullptr) throw std::bad_alloc();
    } else {
      void* pages = before >= pages_from
                        ? ::mremap(data_, before, bytes, MREMAP_MAYMOVE)
                        : ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (pages == MAP_FAILED) throw std::bad_alloc();
      ::madvise(pages, bytes, MADV_HUGEPAGE);
      data = static_cast<T*>(pages);
    }
    if (before < pages_from) {
      if (size_ > 0) std::memcpy(data, data_, size_ * sizeof(T));
      std::free(data_);
    }
    data_ = data;
    capacity_ = capacity;
  }

  T* data_ = nullptr;
  std::size_t size_ = 0, capacity_ = 0;
};

}  // namespace md
