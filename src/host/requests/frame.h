// An object of the agent's as this program has it: the agent's own pages, mapped for reading and leased until it is
// released; or a copy: of a small one, which came in its answer, and where pages cannot be shared.
#pragma once

#include <memory>
#include <vector>

#include "host/connection.h"
#include "host/requests/operation.h"
#include "wire/messages/message_kinds.h"
#include "wire/region.h"

namespace offpath::host {

// Unmaps what it holds. Not a segment: the agent made it.
class Mapping {
 public:
  // Refuses a descriptor whose memory could be taken away while it is mapped, or that is shorter than declared.
  [[nodiscard]] static Result<Mapping> of(int fd, std::uint64_t length);
  Mapping() = default;
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), length_(std::exchange(other.length_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(length_, other.length_);
    return *this;
  }
  ~Mapping();
  [[nodiscard]] const std::byte* data() const noexcept { return static_cast<const std::byte*>(data_); }

 private:
  void* data_ = nullptr;
  std::uint64_t length_ = 0;
};

class PoolFrame {
 public:
  // Waits until the object is there. `wait_ns` is as in ofp_pool_get.
  [[nodiscard]] static Result<std::unique_ptr<PoolFrame>> get(ConnectionPtr connection, std::string_view pool,
                                                              std::string_view row_key, std::string_view column_key,
                                                              std::int64_t wait_ns);
  PoolFrame(const PoolFrame&) = delete;
  PoolFrame& operator=(const PoolFrame&) = delete;
  ~PoolFrame();

  [[nodiscard]] Bytes bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uint64_t rows() const noexcept { return rows_; }
  [[nodiscard]] bool arrow() const noexcept { return arrow_; }
  [[nodiscard]] bool mapped() const noexcept { return mapping_.data() != nullptr; }

 private:
  friend class FrameOperation;
  PoolFrame() = default;

  ConnectionPtr connection_;
  Mapping mapping_;
  std::vector<std::byte> own_;  // an object that came in its answer
  wire::RegionId segment_ = 0;  // where one was pushed to
  std::uint64_t lease_ = 0;
  Bytes bytes_;
  std::uint64_t rows_ = 0;
  bool arrow_ = false;
};

// Any request that is answered by a frame; where pages cannot be shared, and then for the push of its bytes.
class FrameOperation : public Operation {
 public:
  // The agent answers by `deadline`.
  FrameOperation(ConnectionPtr connection, wire::EntryKind kind, TimeNs deadline);
  [[nodiscard]] static std::unique_ptr<FrameOperation> get(ConnectionPtr connection, std::string_view pool,
                                                           std::string_view row_key, std::string_view column_key,
                                                           std::int64_t wait_ns);
  [[nodiscard]] Result<wire::EntryKind> compose(std::vector<std::byte>& payload) override;
  [[nodiscard]] Result<bool> take(const channel::Reply& reply) override;
  [[nodiscard]] bool cancellable() const override;
  // Null if the answer is Done: there is no such frame.
  [[nodiscard]] Result<std::unique_ptr<PoolFrame>> run();

  std::vector<std::byte> request;
  std::unique_ptr<PoolFrame> frame;
  bool given = false;  // to the program

 protected:
  ConnectionPtr connection_;

 private:
  [[nodiscard]] Status take_pushed(const channel::Reply& reply);

  wire::EntryKind kind_;
  std::uint64_t to_push_ = 0;  // bytes
  bool pushing_ = false;
};

}  // namespace offpath::host

struct ofp_frame {
  std::unique_ptr<offpath::host::PoolFrame> frame;
};
