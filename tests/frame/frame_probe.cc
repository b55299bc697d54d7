// The frame layer as a shared library for the Python tests, which hand it data of real Arrow libraries and let real
// readers open the result. Builds each frame like the agent, with memcpy in place of the link, and twice over different
// garbage, which reveals unwritten bytes.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "frame/c_arrays.h"
#include "frame/gather.h"
#include "frame/parse.h"
#include "frame/plan.h"
#include "frame/schema.h"
#include "mover/body_compressor.h"
#include "wire/messages/stream_messages.h"

#define PROBE_API extern "C" __attribute__((visibility("default")))

namespace {

using namespace offpath;
using namespace offpath::frame;

struct Free {
  void operator()(std::byte* memory) const noexcept { std::free(memory); }
};
using Memory = std::unique_ptr<std::byte, Free>;

Memory page_aligned(std::uint64_t bytes, int garbage) {
  const std::uint64_t rounded = align_up(bytes + 1, page_bytes);
  Memory memory(static_cast<std::byte*>(std::aligned_alloc(page_bytes, rounded)));
  std::memset(memory.get(), garbage, rounded);
  return memory;
}

constexpr std::uint64_t gathered_bytes_max = 64u << 20;

struct ProbeStream {
  std::shared_ptr<const Template> form;
  Layout given;  // with the views and runs of the program's schema
};

struct ProbeFrame {
  std::shared_ptr<std::byte> memory;
  std::uint64_t bytes = 0;
  std::uint64_t pulls = 0;
  std::uint64_t blocks = 0;
  std::uint64_t steps = 0;
  std::uint64_t body = 0;
  Plan plan;  // of a compressed one
};

thread_local std::string last_error;

int failed(const Failure& failure) {
  last_error = fmt::format("{}: {}", error_name(failure.code), failure.message);
  return static_cast<int>(failure.code);
}

const std::byte* at_address(std::uint64_t address) { return reinterpret_cast<const std::byte*>(address); }

Status fill(const Template& form, Plan& plan, MutableBytes frame, bool sliced) {
  for (const Pull& pull : plan.pulls) std::memcpy(frame.data() + pull.target, at_address(pull.address), pull.bytes);
  if (sliced) {
    constexpr std::uint64_t slice_rows = 24;
    for (const Block& block : plan.blocks) {
      for (std::uint64_t row = 0; row < block.rows; row += slice_rows) {
        const std::uint64_t end = std::min(block.rows, row + slice_rows);
        std::vector<std::byte> scratch((end - row - 1) * block.stride_bytes + block.row_bytes);
        std::memcpy(scratch.data(), at_address(block.address) + row * block.stride_bytes, scratch.size());
        split_rows(plan, block, row, end, scratch.data(), block.stride_bytes, frame);
      }
    }
  } else {
    std::vector<std::byte> scratch(plan.scratch_bytes);
    for (const Block& block : plan.blocks)
      std::memcpy(scratch.data() + block.scratch, at_address(block.address), block.bytes);
    split_blocks(plan, scratch, frame);
  }
  write_head(form, plan, frame);
  OFP_TRY(finish(form, plan, frame));
  return check_contents(form, plan, frame);
}

Result<std::unique_ptr<ProbeFrame>> build(const Template& form, const BatchView& view) {
  auto made = std::make_unique<ProbeFrame>();
  Memory memories[2];
  for (int i = 0; i < 2; ++i) {
    Plan& plan = made->plan;
    OFP_TRY(make_plan(form, view, {}, plan));
    made->bytes = plan.frame_bytes;
    made->pulls = plan.pulls.size();
    made->blocks = plan.blocks.size();
    made->steps = plan.steps.size();
    made->body = plan.parts[0].body;
    memories[i] = page_aligned(plan.frame_bytes, i == 0 ? 0xA5 : 0x5A);
    OFP_TRY(fill(form, plan, {memories[i].get(), plan.frame_bytes}, i == 1));
  }
  for (std::uint64_t i = 0; i < made->bytes; ++i) {
    if (memories[0].get()[i] != memories[1].get()[i]) {
      return fail(Error::invalid, "byte {} of {} of the frame was never written", i, made->bytes);
    }
  }
  made->memory = std::shared_ptr<std::byte>(memories[0].release(), Free());

  const Bytes frame(made->memory.get(), made->bytes);
  OFP_ASSIGN(const FrameView parsed, parse_frame(frame));
  OFP_ASSIGN(const Schema schema, read_schema(frame, parsed));
  if (schema != form.schema) return fail(Error::invalid, "the schema read back differs");
  if (!parsed.marked || parsed.end != frame.size()) return fail(Error::invalid, "the end marker is not at the end");
  if (parsed.rows != view.rows) return fail(Error::invalid, "{} rows read back of {}", parsed.rows, view.rows);
  return made;
}

// The same frame compressed, likewise twice over different garbage.
Result<std::unique_ptr<ProbeFrame>> compress(const Template& form, const ProbeFrame& plain,
                                             wire::Compression compression) {
  const auto compressor = mover::make_body_compressor(compression);
  OFP_ASSIGN(const auto packed_form, make_template(form.schema, ipc_alignment, compression));
  auto made = std::make_unique<ProbeFrame>();
  Memory memories[2];
  for (int i = 0; i < 2; ++i) {
    const std::uint64_t room = packing_bytes(*compressor, plain.plan);
    const Memory scratch = page_aligned(room, i == 0 ? 0xA5 : 0x5A);
    PackedFrame packed;
    OFP_TRY(
        pack(*packed_form, *compressor, plain.plan, {plain.memory.get(), plain.bytes}, {scratch.get(), room}, packed));
    made->bytes = packed.plan.frame_bytes;
    made->body = packed.plan.parts[0].body;
    memories[i] = page_aligned(made->bytes, i == 0 ? 0xA5 : 0x5A);
    write_packed(*packed_form, packed, {memories[i].get(), made->bytes});
  }
  if (std::memcmp(memories[0].get(), memories[1].get(), made->bytes) != 0)
    return fail(Error::invalid, "a byte of the compressed frame was never written");
  made->memory = std::shared_ptr<std::byte>(memories[0].release(), Free());
  const Bytes frame(made->memory.get(), made->bytes);
  OFP_ASSIGN(const FrameView parsed, parse_frame(frame));
  OFP_ASSIGN(const Schema schema, read_schema(frame, parsed));
  if (schema != form.schema) return fail(Error::invalid, "the schema read back differs");
  if (!parsed.marked || parsed.end != frame.size()) return fail(Error::invalid, "the end marker is not at the end");
  return made;
}

Status export_frame(Bytes frame, std::shared_ptr<const void> owner, ArrowSchema* schema_out, ArrowArray* array_out) {
  OFP_ASSIGN(const FrameView parsed, parse_frame(frame));
  OFP_ASSIGN(const Schema schema, read_schema(frame, parsed));
  OFP_ASSIGN(const Layout layout, make_layout(schema));
  std::int64_t rows = 0;
  std::vector<NodeShape> nodes;
  std::vector<BufferPlace> buffers;
  OFP_TRY(read_batch(layout, frame, parsed, rows, nodes, buffers));
  export_schema(schema, schema_out);
  export_array(layout, rows, nodes, buffers, frame.data(), std::move(owner), array_out);
  return {};
}

}  // namespace

PROBE_API const char* probe_error() { return last_error.c_str(); }

PROBE_API int probe_open(const ArrowSchema* schema, std::uint32_t alignment, ProbeStream** out) {
  auto imported = import_schema(*schema);
  if (!imported) return failed(imported.error());
  auto decoded = decode(encode(*imported));
  if (!decoded) return failed(decoded.error());
  if (encode(*decoded) != encode(*imported)) return failed({Error::invalid, "the schema decoded differs"});
  auto given = make_layout(*imported);
  if (!given) return failed(given.error());
  auto form = make_template(std::move(*decoded), alignment);
  if (!form) return failed(form.error());
  *out = new ProbeStream{*form, std::move(*given)};
  return 0;
}

PROBE_API void probe_close(ProbeStream* stream) { delete stream; }

PROBE_API int probe_build(const ProbeStream* stream, const ArrowArray* batch, ProbeFrame** out) {
  BatchView view;
  OwnMemory counted(gathered_bytes_max);
  if (auto status = flatten(stream->given, *batch, view, counted); !status) return failed(status.error());
  const Memory memory = page_aligned(counted.bytes(), 0xA5);
  OwnMemory own(MutableBytes(memory.get(), counted.bytes()));
  if (auto status = flatten(stream->given, *batch, view, own); !status) return failed(status.error());
  if (own.bytes() != counted.bytes()) return failed({Error::invalid, "the two passes differ"});
  auto made = build(*stream->form, view);
  if (!made) return failed(made.error());
  *out = made->release();
  return 0;
}

PROBE_API int probe_compress(const ProbeStream* stream, const ProbeFrame* plain, const char* codec, ProbeFrame** out) {
  auto compression = wire::parse_compression(codec);
  if (!compression) return failed(compression.error());
  auto made = compress(*stream->form, *plain, *compression);
  if (!made) return failed(made.error());
  *out = made->release();
  return 0;
}

PROBE_API int probe_build_plain(const ProbeStream* stream, std::int64_t rows, const PlainColumn* columns,
                                std::size_t count, ProbeFrame** out) {
  BatchView view;
  if (auto status = flatten_plain(stream->form->layout, rows, {columns, count}, view); !status)
    return failed(status.error());
  auto made = build(*stream->form, view);
  if (!made) return failed(made.error());
  *out = made->release();
  return 0;
}

PROBE_API void probe_free(ProbeFrame* frame) { delete frame; }

// address, bytes, pulls, blocks, steps, body
PROBE_API void probe_look(const ProbeFrame* frame, std::uint64_t* numbers) {
  numbers[0] = reinterpret_cast<std::uint64_t>(frame->memory.get());
  numbers[1] = frame->bytes;
  numbers[2] = frame->pulls;
  numbers[3] = frame->blocks;
  numbers[4] = frame->steps;
  numbers[5] = frame->body;
}

PROBE_API int probe_export(const ProbeFrame* frame, ArrowSchema* schema, ArrowArray* array) {
  auto status = export_frame({frame->memory.get(), frame->bytes}, frame->memory, schema, array);
  return status ? 0 : failed(status.error());
}

// How many hold the frame's memory: this handle and every array exported from it.
PROBE_API long probe_owners(const ProbeFrame* frame) { return frame->memory.use_count(); }

PROBE_API void probe_release_schema(ArrowSchema* schema) {
  if (schema->release != nullptr) schema->release(schema);
}

PROBE_API void probe_release_array(ArrowArray* array) {
  if (array->release != nullptr) array->release(array);
}

// A stream that another library wrote.
PROBE_API int probe_read(const void* bytes, std::uint64_t size, ArrowSchema* schema, ArrowArray* array) {
  std::shared_ptr<std::byte> copy(page_aligned(size, 0).release(), Free());
  std::memcpy(copy.get(), bytes, size);
  auto status = export_frame({copy.get(), size}, copy, schema, array);
  return status ? 0 : failed(status.error());
}

PROBE_API int probe_stitch(const char* path, const ProbeFrame* const* frames, std::size_t count,
                           std::uint32_t alignment) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path, "wb"), std::fclose);
  if (!file) return failed(fail_errno(errno, "fopen").value());
  std::uint64_t position = 0;
  const auto write = [&](Bytes bytes) { position += std::fwrite(bytes.data(), 1, bytes.size(), file.get()); };
  const std::vector<std::byte> zeros(page_bytes);
  for (std::size_t i = 0; i < count; ++i) {
    const Bytes frame(frames[i]->memory.get(), frames[i]->bytes);
    auto parsed = parse_frame(frame);
    if (!parsed) return failed(parsed.error());
    for (std::size_t k = i == 0 ? 0 : 1; k < parsed->messages.size(); ++k) {
      const MessagePiece piece = fit_message(frame, parsed->messages[k], position, alignment);
      write(piece.prefix);
      write(piece.metadata);
      write({zeros.data(), piece.padding_bytes});
      write(piece.body);
    }
  }
  write(end_marker);
  return 0;
}
