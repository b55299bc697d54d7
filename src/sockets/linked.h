// A doubly linked ring through its members: one of them is the head and stands for the list. Insertion and removal take
// constant time and no memory. A type that is in several rings has a base of this template for each, by its tag.
#pragma once

#include <utility>

namespace offpath::sockets {

template <class Tag>
class Linked {
 public:
  Linked() = default;
  Linked(const Linked&) = delete;
  Linked& operator=(const Linked&) = delete;
  ~Linked() { unlink(); }

  [[nodiscard]] bool alone() const noexcept { return next_ == this; }
  [[nodiscard]] Linked& next() const noexcept { return *next_; }
  // At the end of the ring of `head`.
  void link(Linked& head) noexcept {
    unlink();
    next_ = &head;
    previous_ = std::exchange(head.previous_, this);
    previous_->next_ = this;
  }
  void unlink() noexcept {
    previous_->next_ = next_;
    next_->previous_ = previous_;
    next_ = previous_ = this;
  }

 private:
  Linked *next_ = this, *previous_ = this;
};

}  // namespace offpath::sockets
