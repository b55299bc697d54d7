#include "frame/body_compression.h"

namespace offpath::frame {

namespace {

constexpr std::uint64_t length_bytes = sizeof(std::int64_t);
constexpr std::int64_t as_it_is = -1;

class Packer {
 public:
  Packer(const Template& form, const Plan& plan, Bytes frame, std::span<const BodyCompressor::Task> tasks,
         PackedFrame& packed)
      : form_(form), plan_(plan), frame_(frame), tasks_(tasks), packed_(packed) {}

  void run() {
    Plan& to = packed_.plan;
    to = {};
    to.rows = plan_.rows;
    to.nodes = plan_.nodes;
    to.parts.resize(plan_.parts.size());
    to.buffers.resize(plan_.buffers.size());
    packed_.pieces.clear();
    packed_.compressed = 0;
    // In the order of the plain frame: dictionaries first, the rows last.
    at_ = form_.schema_message.size();
    for (std::uint32_t part = 1; part < to.parts.size(); ++part) place(part);
    place(0);
    to.frame_bytes = at_ + end_marker_bytes;
  }

 private:
  void place(std::uint32_t part) {
    PartPlace& place = packed_.plan.parts[part];
    place.message = at_;
    place.body = at_ = at_ + message_prefix_bytes + form_.prototypes[part].metadata.size();
    const PartLayout& range = form_.layout.parts[part];
    for (std::uint32_t buffer = range.buffer_begin; buffer < range.buffer_end; ++buffer) {
      packed_.plan.buffers[buffer] = {at_, 0};
      if (plan_.buffers[buffer].bytes > 0) this->buffer(buffer);
    }
    place.body_bytes = at_ - place.body;
  }

  void buffer(std::uint32_t index) {
    const BufferPlace& plain = plan_.buffers[index];
    const BodyCompressor::Task& task = tasks_[index];
    PackedFrame::Piece piece{at_, static_cast<std::int64_t>(plain.bytes), task.to.first(task.written)};
    if (task.written >= plain.bytes) {
      piece.plain_bytes = as_it_is;
      piece.bytes = frame_.subspan(plain.offset, plain.bytes);
    }
    if (piece.plain_bytes != as_it_is) ++packed_.compressed;
    packed_.plan.buffers[index].bytes = length_bytes + piece.bytes.size();
    const std::uint64_t end = at_ + length_bytes + piece.bytes.size();
    at_ = align_up(end, ipc_alignment);
    if (at_ > end) packed_.plan.gaps.push_back({end, at_ - end});
    packed_.pieces.push_back(piece);
  }

  const Template& form_;
  const Plan& plan_;
  const Bytes frame_;
  const std::span<const BodyCompressor::Task> tasks_;  // as Layout::buffers
  PackedFrame& packed_;
  std::uint64_t at_ = 0;
};

}  // namespace

std::uint64_t packing_bytes(const BodyCompressor& compressor, const Plan& plan) {
  std::uint64_t bytes = 0;
  for (const BufferPlace& buffer : plan.buffers)
    if (buffer.bytes > 0) bytes += compressor.room(buffer.bytes);
  return bytes;
}

Status pack(const Template& form, const BodyCompressor& compressor, const Plan& plan, Bytes frame, MutableBytes scratch,
            PackedFrame& packed) {
  OFP_ASSERT(form.compression == compressor.compression() && form.alignment == ipc_alignment);
  OFP_ASSERT(frame.size() >= plan.frame_bytes && scratch.size() >= packing_bytes(compressor, plan));
  std::vector<BodyCompressor::Task> tasks(plan.buffers.size());
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const BufferPlace& buffer = plan.buffers[i];
    if (buffer.bytes == 0) continue;
    const std::uint64_t room = compressor.room(buffer.bytes);
    tasks[i] = {frame.subspan(buffer.offset, buffer.bytes), scratch.subspan(at, room)};
    at += room;
  }
  OFP_TRY(compressor.compress(tasks));
  Packer(form, plan, frame, tasks, packed).run();
  return {};
}

void write_packed(const Template& form, const PackedFrame& packed, MutableBytes to) {
  write_head(form, packed.plan, to);
  for (const PackedFrame::Piece& piece : packed.pieces) {
    store(to.data() + piece.target, piece.plain_bytes);
    std::memcpy(to.data() + piece.target + length_bytes, piece.bytes.data(), piece.bytes.size());
  }
}

}  // namespace offpath::frame
