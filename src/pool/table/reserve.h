// Memory reserved for objects that other members keep here, in use or not. So a service whose objects have copies gives
// its senders credit only for objects that have room at every member with a copy.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace offpath::pool {

// Thread-safe: jobs let frames go too.
class Reserve : public std::enable_shared_from_this<Reserve> {
 public:
  // An object's share of it, for as long as this lives; the object's frame holds it.
  class Share {
   public:
    Share(std::shared_ptr<Reserve> of, std::uint64_t bytes) : of_(std::move(of)), bytes_(bytes) {}
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    ~Share() { of_->taken_.fetch_sub(bytes_, std::memory_order_relaxed); }

   private:
    std::shared_ptr<Reserve> of_;
    std::uint64_t bytes_;
  };

  explicit Reserve(std::uint64_t bytes) : bytes_(bytes) {}

  // Null: not enough is left. Called on the loop only.
  [[nodiscard]] std::shared_ptr<const void> take(std::uint64_t bytes) {
    if (bytes > left()) return nullptr;
    taken_.fetch_add(bytes, std::memory_order_relaxed);
    return std::make_shared<const Share>(shared_from_this(), bytes);
  }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uint64_t left() const noexcept { return bytes_ - taken_.load(std::memory_order_relaxed); }

 private:
  std::uint64_t bytes_;
  std::atomic<std::uint64_t> taken_{0};
};

}  // namespace offpath::pool
