#include "mover/body_compressor.h"

#include <lz4frame.h>
#include <zstd.h>

namespace offpath::mover {

namespace {

using wire::Compression;
using Task = frame::BodyCompressor::Task;

// The level of Arrow's own writers. Higher levels cost several times as much and hardly shrink simulations' floats.
constexpr int zstd_level = 1;

class Lz4 final : public frame::BodyCompressor {
 public:
  Compression compression() const noexcept override { return Compression::lz4; }
  std::uint64_t room(std::uint64_t bytes) const noexcept override { return LZ4F_compressFrameBound(bytes, nullptr); }

  Status compress(std::span<Task> tasks) const override {
    for (Task& task : tasks) {
      if (task.from.empty()) continue;
      const std::size_t written =
          LZ4F_compressFrame(task.to.data(), task.to.size(), task.from.data(), task.from.size(), nullptr);
      if (LZ4F_isError(written) != 0)
        return fail(Error::no_memory, "LZ4 of {} bytes: {}", task.from.size(), LZ4F_getErrorName(written));
      task.written = written;
    }
    return {};
  }
};

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const noexcept { ZSTD_freeCCtx(context); }
};

class Zstd final : public frame::BodyCompressor {
 public:
  Compression compression() const noexcept override { return Compression::zstd; }
  std::uint64_t room(std::uint64_t bytes) const noexcept override { return ZSTD_compressBound(bytes); }

  Status compress(std::span<Task> tasks) const override {
    const std::unique_ptr<ZSTD_CCtx, FreeContext> context(ZSTD_createCCtx());
    if (!context) return fail(Error::no_memory, "Zstandard has no memory for a context");
    for (Task& task : tasks) {
      if (task.from.empty()) continue;
      const std::size_t written = ZSTD_compressCCtx(context.get(), task.to.data(), task.to.size(), task.from.data(),
                                                    task.from.size(), zstd_level);
      if (ZSTD_isError(written) != 0)
        return fail(Error::no_memory, "Zstandard of {} bytes: {}", task.from.size(), ZSTD_getErrorName(written));
      task.written = written;
    }
    return {};
  }
};

}  // namespace

std::shared_ptr<const frame::BodyCompressor> make_body_compressor(Compression compression) {
  OFP_ASSERT(compression != Compression::none);
  if (compression == Compression::lz4) return std::make_shared<const Lz4>();
  return std::make_shared<const Zstd>();
}

}  // namespace offpath::mover
