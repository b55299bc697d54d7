#include "host/send/stream.h"

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "frame/c_data.h"
#include "wire/messages/replies.h"

namespace offpath::host {
namespace {

constexpr TimeNs open_wait_ns = 30 * second_ns;  // a stopped agent does not block a program forever
constexpr TimeNs close_wait_min_ns = 100 * millisecond_ns;
constexpr std::uint64_t short_keys_bytes = 512;  // for longer ones it grows
constexpr const char* bytes_column = "bytes";

Result<ofp_stream_options> complete(const ofp_stream_options* given) {
  ofp_stream_options options{};
  if (given == nullptr) return options;
  OFP_TRY(check_struct_bytes(given->struct_bytes, sizeof options, "ofp_stream_options"));
  std::memcpy(&options, given, std::min<std::size_t>(given->struct_bytes, sizeof options));
  return options;
}

Status check_ranks(std::string_view name, const ofp_stream_options& options) {
  if (options.ranks == 0 && options.rank != 0)
    return fail(Error::invalid, "stream \"{}\": rank {} without a number of ranks", name, options.rank);
  if (options.ranks > 0 && options.rank >= options.ranks)
    return fail(Error::invalid, "stream \"{}\": rank {} of {} ranks; ranks count from 0", name, options.rank,
                options.ranks);
  return {};
}

}  // namespace

Result<std::string_view> checked_key(const char* key, const char* what, std::size_t bytes_max) {
  if (key == nullptr) return std::string_view{};
  const std::size_t length = strnlen(key, bytes_max + 1);
  if (length > bytes_max)
    return fail(Error::too_large, "{} has more than {} bytes: \"{}…\"", what, bytes_max, std::string_view(key, 32));
  return std::string_view(key, length);
}

Result<frame::Schema> schema_of_columns(const ofp_column* columns, std::uint32_t count) {
  if (count > 0) OFP_TRY(required(columns, "columns"));
  std::vector<ArrowSchema> fields(count);
  std::vector<ArrowSchema> items;
  std::vector<ArrowSchema*> item_pointers(count), pointers(count);
  std::vector<std::string> item_formats(count);
  items.resize(count);
  const auto keep = [](ArrowSchema*) {};
  for (std::uint32_t i = 0; i < count; ++i) {
    const ofp_column& column = columns[i];
    if (column.name == nullptr) return fail(Error::invalid, "columns[{}].name is NULL", i);
    if (column.format == nullptr) return fail(Error::invalid, "column \"{}\": its format is NULL", column.name);
    fields[i] = {.format = column.format,
                 .name = column.name,
                 .metadata = nullptr,
                 .flags = 0,
                 .n_children = 0,
                 .children = nullptr,
                 .dictionary = nullptr,
                 .release = keep,
                 .private_data = nullptr};
    // "+w:3g": the list's values have their format behind its size.
    std::string_view format = column.format;
    if (format.starts_with("+w:")) {
      const std::size_t size_end = format.find_first_not_of("0123456789", 3);
      if (size_end == std::string_view::npos || size_end == 3)
        return fail(Error::schema,
                    "column \"{}\": format \"{}\" names no type of values; three doubles a row are \"+w:3g\"",
                    column.name, format);
      items[i] = fields[i];
      items[i].name = "item";
      items[i].format = column.format + size_end;
      if (items[i].format[0] == '+')
        return fail(Error::unsupported,
                    "column \"{}\": format \"{}\" is a list of lists; open the stream with a schema", column.name,
                    format);
      item_formats[i] = format.substr(0, size_end);
      item_pointers[i] = &items[i];
      fields[i].format = item_formats[i].c_str();
      fields[i].n_children = 1;
      fields[i].children = &item_pointers[i];
    }
    pointers[i] = &fields[i];
  }
  const ArrowSchema root{.format = "+s",
                         .name = "",
                         .metadata = nullptr,
                         .flags = 0,
                         .n_children = static_cast<std::int64_t>(count),
                         .children = pointers.data(),
                         .dictionary = nullptr,
                         .release = keep,
                         .private_data = nullptr};
  return frame::import_schema(root);
}

// ---- opening

Status Stream::prepare_columns(const frame::Schema& schema, std::span<const std::uint32_t> strides) {
  for (std::size_t i = 0; i < schema.fields.size(); ++i) {
    ColumnShape column;
    column.name = schema.fields[i].name;
    std::uint32_t node = layout_.columns[i];
    bool runs = !layout_.nodes[node].run_ends.empty();
    for (; layout_.nodes[node].type == frame::Type::fixed_list; runs |= !layout_.nodes[++node].run_ends.empty())
      if (!checked_mul(column.values, layout_.nodes[node].list_size, column.values))
        return fail(Error::schema, "column \"{}\": too many values in a row", column.name);
    const frame::NodeLayout& leaf = layout_.nodes[node];
    column.boolean = leaf.type == frame::Type::boolean;
    column.value_bytes = column.boolean ? 1 : leaf.value_bytes;
    if (runs || leaf.buffers != 2 || leaf.dictionary != 0 || leaf.children != 0) {
      not_plain_ = fmt::format("column \"{}\" is {}{}, which is not plain memory; send it as an Arrow array",
                               column.name, runs ? "runs of " : "", frame::describe(schema.fields[i]));
      return {};
    }
    if (!checked_mul(column.values, column.value_bytes, column.row_bytes)) column.row_bytes = UINT64_MAX;
    OFP_TRY(check_rows(column, std::max<std::uint64_t>(rows_max_, 1)));
    columns_.push_back(std::move(column));
    strides_.push_back(i < strides.size() ? strides[i] : 0);
  }
  return check_strides(strides_);
}

Status Stream::check_rows(const ColumnShape& column, std::uint64_t rows_max) {
  std::uint64_t bytes = 0;
  if (checked_mul(column.row_bytes, rows_max, bytes) && bytes <= wire::region_bytes_max) return {};
  return fail(Error::too_large, "column \"{}\": {} rows of {} bytes; a column has at most {} bytes", column.name,
              rows_max, column.row_bytes, wire::region_bytes_max);
}

Status Stream::check_strides(std::span<const std::uint32_t> strides) const {
  for (std::size_t i = 0; i < strides.size(); ++i) {
    const ColumnShape& column = columns_[i];
    if (strides[i] == 0) continue;
    if (column.values != 1 && strides[i] != column.row_bytes)
      return fail(Error::unsupported,
                  "column \"{}\": rows {} bytes apart; lists of {} values must lie side by side, {} bytes", column.name,
                  strides[i], column.values, column.row_bytes);
    if (strides[i] < column.value_bytes)
      return fail(Error::invalid, "column \"{}\": a stride of {} bytes, its values have {}", column.name, strides[i],
                  column.value_bytes);
  }
  return {};
}

Status Stream::prepare(frame::Schema schema, std::span<const std::uint32_t> strides) {
  if (schema.fields.empty()) {
    if (!bytes_as_they_are())
      return fail(Error::schema, "stream \"{}\": destination {} needs a schema", name_,
                  wire::destination_name(destination_));
    frame::Field bytes;
    bytes.name = bytes_column;
    bytes.type = frame::Type::uint8;
    schema.fields.push_back(std::move(bytes));
  }
  OFP_ASSIGN(layout_, frame::make_layout(schema));
  OFP_TRY(prepare_columns(schema, strides));
  const std::size_t buffers = not_plain_.empty() ? columns_.size() : layout_.buffers.size();
  if (buffers > wire::buffers_max)
    return fail(Error::too_large, "stream \"{}\": its schema has {} buffers, a batch has at most {}", name_, buffers,
                wire::buffers_max);
  scratch_.names.resize(columns_.size());
  scratch_.hints.resize(columns_.size());
  scratch_.uses.reserve(columns_.size());
  known_ = KnownColumns(columns_.size());
  scratch_.payload.resize(sizeof(wire::SendHead) + short_keys_bytes + columns_.size() * sizeof(wire::BufferRef));
  return {};
}

Result<std::unique_ptr<Stream>> Stream::open(ConnectionPtr connection, std::string_view name, frame::Schema schema,
                                             std::span<const std::uint32_t> strides, const ofp_stream_options* given) {
  OFP_ASSIGN(const ofp_stream_options options, complete(given));
  if (name.empty()) return fail(Error::invalid, "a stream needs a name");
  OFP_TRY(check_ranks(name, options));
  std::unique_ptr<Stream> stream(new Stream);
  stream->name_ = name;
  stream->rows_max_ = options.rows_max;
  if (options.destination != nullptr) {
    OFP_ASSIGN(stream->destination_, wire::parse_destination(options.destination));
  }
  wire::Compression compression = wire::Compression::none;
  if (options.compression != nullptr) {
    OFP_ASSIGN(compression, wire::parse_compression(options.compression));
  }
  if (options.rows_max == 0 && !stream->bytes_as_they_are())
    return fail(Error::invalid, "stream \"{}\": rows_max is 0; set it to the rows of the largest batch", name);
  const std::string default_pool = fmt::format("local:/{}", name);
  OFP_ASSIGN(const std::string_view pool, checked_key(options.pool, "the pool's name", wire::pool_bytes_max));
  std::vector<std::byte> encoded;
  if (!stream->bytes_as_they_are() && !schema.fields.empty()) encoded = frame::encode(schema);
  OFP_TRY(stream->prepare(std::move(schema), strides));
  constexpr std::uint64_t schema_bytes_max = wire::entry_bytes_max - wire::pool_bytes_max - 1024;
  if (encoded.size() > schema_bytes_max)
    return fail(Error::too_large, "stream \"{}\": its schema has {} bytes, at most {} can be sent", name,
                encoded.size(), schema_bytes_max);

  wire::OpenStream open{};
  open.destination = stream->destination_;
  open.compression = compression;
  open.rows_max = options.rows_max;
  open.keep = options.keep;
  open.ranks = options.ranks;
  open.rank = options.rank;
  open.name = name;
  open.pool = pool.empty() ? std::string_view(default_pool) : pool;
  open.schema = encoded;
  OFP_ASSIGN(const wire::Opened opened, connection->end.open_stream(open, connection->deadline(open_wait_ns)));
  connection->add_stream(open.stream);
  stream->connection_ = std::move(connection);
  stream->number_ = open.stream;
  stream->charge_base_ = opened.charge_base;
  return stream;
}

// The agent reads the request in the order of the ring, so batches under way keep the limit they were posted with.
Status Stream::grow(std::uint64_t rows_max, std::int64_t wait_ns) {
  OFP_TRY(connection_->here());
  if (rows_max_ == 0 || rows_max <= rows_max_) return {};
  for (const ColumnShape& column : columns_) OFP_TRY(check_rows(column, rows_max));
  std::vector<std::byte> payload;
  wire::encode(wire::GrowStream{number_, rows_max}, payload);
  OFP_TRY(connection_->end.call(wire::EntryKind::grow_stream, payload, connection_->deadline(wait_ns)));
  std::uint64_t before = rows_max_;
  while (before < rows_max && !rows_max_.compare_exchange_weak(before, rows_max)) {
  }
  return {};
}

Status Stream::close(std::int64_t wait_ns) {
  OFP_TRY(connection_->here());
  connection_->remove_stream(number_);
  // Even who does not want to wait for leases needs the agent's answer.
  const std::int64_t wait = wait_ns < 0 ? wait_ns : std::max(wait_ns, close_wait_min_ns);
  OFP_TRY(connection_->end.close_stream(number_, connection_->deadline(wait)));
  connection_->staging.forget(number_);
  HostEnd::Posting posting = connection_->end.begin();
  connection_->end.sets_bytes(posting) -= known_.sets_bytes();
  known_ = {};
  return {};
}

// ---- progress

void Stream::note(std::uint64_t ticket, bool copied) {
  if (!copied) {
    leased_ticket_.store(ticket, std::memory_order_relaxed);
    return;
  }
  const std::lock_guard lock(copied_mutex_);
  std::erase_if(copied_, [reached = connection_->end.pulled(number_)](std::uint64_t each) { return each <= reached; });
  copied_.push_back(ticket);
  copied_ticket_.store(ticket, std::memory_order_release);
}

bool Stream::is_copied(std::uint64_t ticket) const {
  if (copied_ticket_.load(std::memory_order_acquire) == 0) return false;
  const std::lock_guard lock(copied_mutex_);
  return std::ranges::find(copied_, ticket) != copied_.end();
}

std::uint64_t Stream::pulled() const noexcept {
  // In this order: a copied ticket that is seen implies that leased ones before it are seen.
  const std::uint64_t copied = copied_ticket_.load(std::memory_order_acquire);
  const std::uint64_t leased = leased_ticket_.load(std::memory_order_relaxed);
  const std::uint64_t reached = connection_->end.pulled(number_);
  return reached >= leased ? std::max(reached, copied) : reached;
}

Status Stream::wait_pulled(std::uint64_t ticket, std::int64_t wait_ns) {
  OFP_TRY(connection_->here());
  HostEnd& end = connection_->end;
  if (is_copied(ticket)) {
    const Status status = end.wait(number_, ticket, channel::Progress::pulled, 0);
    if (status || status.error().code == Error::timeout) return {};
    return status;
  }
  return end.wait(number_, ticket, channel::Progress::pulled, connection_->deadline(wait_ns));
}

Status Stream::wait_stored(std::uint64_t ticket, std::int64_t wait_ns) {
  OFP_TRY(connection_->here());
  HostEnd& end = connection_->end;
  const TimeNs deadline = connection_->deadline(wait_ns), silent_until = std::min(deadline, end.now() + silent_ns);
  Status stored = end.wait(number_, ticket, channel::Progress::stored, silent_until);
  const bool is_silent = !stored && stored.error().code == Error::timeout && end.now() >= silent_until;
  if (!is_silent || silent_until >= deadline) return stored;
  tell_why_waits(ticket, std::min(deadline, end.now() + silent_ns));
  return end.wait(number_, ticket, channel::Progress::stored, deadline);
}

// The agent knows which members a put waits for.
void Stream::tell_why_waits(std::uint64_t ticket, TimeNs until) {
  std::vector<std::byte> payload;
  wire::encode(wire::WhyWaits{number_, ticket}, payload);
  const auto why = connection_->end.call(wire::EntryKind::why_waits, payload, until);
  if (why || why.error().code != Error::timeout || connection_->end.now() >= until) return;
  log(LogLevel::warning, "stream \"{}\": a batch has waited {} s to be stored and still waits: {}", name_,
      silent_ns / second_ns, why.error().message);
}

}  // namespace offpath::host
