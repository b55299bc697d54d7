// First in, first out. An empty queue that never had an element takes no memory besides itself, where a std::deque
// takes 600 bytes: an agent has a dozen queues for each channel, and most channels are idle.
//
// Elements lie side by side in the order of their arrival, behind `head_` that have gone. Adding and removing elements
// makes iterators and references invalid.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

namespace offpath {

template <class T>
class Queue {
  static_assert(std::is_nothrow_move_constructible_v<T>);

 public:
  using iterator = typename std::vector<T>::iterator;
  using const_iterator = typename std::vector<T>::const_iterator;

  [[nodiscard]] bool empty() const noexcept { return head_ == items_.size(); }
  [[nodiscard]] std::size_t size() const noexcept { return items_.size() - head_; }
  [[nodiscard]] iterator begin() noexcept { return items_.begin() + static_cast<std::ptrdiff_t>(head_); }
  [[nodiscard]] iterator end() noexcept { return items_.end(); }
  [[nodiscard]] const_iterator begin() const noexcept { return items_.begin() + static_cast<std::ptrdiff_t>(head_); }
  [[nodiscard]] const_iterator end() const noexcept { return items_.end(); }
  [[nodiscard]] T& front() noexcept { return items_[head_]; }
  [[nodiscard]] const T& front() const noexcept { return items_[head_]; }
  [[nodiscard]] T& back() noexcept { return items_.back(); }

  void push_back(T item) { emplace_back(std::move(item)); }
  template <class... Arguments>
  T& emplace_back(Arguments&&... arguments) {
    // Half of the places are free, so each element is moved a constant number of times.
    if (items_.size() == items_.capacity() && head_ >= size()) drop_gone();
    return items_.emplace_back(std::forward<Arguments>(arguments)...);
  }
  void pop_front() noexcept {
    [[maybe_unused]] const T gone(std::move(items_[head_++]));  // releases what the element owned
    if (empty()) clear();
  }
  void erase(iterator item) noexcept {
    if (item == begin()) return pop_front();
    items_.erase(item);
  }
  void clear() noexcept {
    items_.clear();
    head_ = 0;
  }

 private:
  void drop_gone() noexcept {
    items_.erase(items_.begin(), begin());
    head_ = 0;
  }

  std::vector<T> items_;
  std::size_t head_ = 0;
};

}  // namespace offpath
