// A frame on a simulated disk: a function of the test returns its bytes, or an error.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "service/frame.h"

namespace offpath::pool {

class MemoryUnread final : public service::Unread {
 public:
  using Read = std::function<Result<Bytes>()>;
  MemoryUnread(std::shared_ptr<service::BufferCache> cache, Read read)
      : cache_(std::move(cache)), read_(std::move(read)) {}
  static service::FramePtr frame(std::uint64_t bytes, std::uint64_t rows, std::shared_ptr<service::BufferCache> cache,
                                 Read read) {
    auto made = std::make_shared<service::Frame>();
    made->bytes = bytes;
    made->rows = rows;
    made->unread = std::make_shared<const MemoryUnread>(std::move(cache), std::move(read));
    return made;
  }

  Result<service::FramePtr> read() const override {
    OFP_ASSIGN(const Bytes bytes, read_());
    auto made = std::make_shared<service::Frame>();
    OFP_ASSIGN(made->buffer, cache_->take(bytes.size(), 7));
    std::memcpy(made->buffer.data(), bytes.data(), bytes.size());
    made->bytes = bytes.size();
    return made;
  }
  Status read_part(std::uint64_t offset, MutableBytes into) const override {
    OFP_ASSIGN(const Bytes bytes, read_());
    if (!into.empty()) std::memcpy(into.data(), bytes.subspan(offset, into.size()).data(), into.size());
    return {};
  }
  std::string described() const override { return "a file in memory"; }

 private:
  std::shared_ptr<service::BufferCache> cache_;
  Read read_;
};

}  // namespace offpath::pool
