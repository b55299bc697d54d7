#include "exchange/parcel.h"

namespace offpath::exchange {

namespace {

constexpr std::uint32_t magic = 0x5058464F;  // "OFXP"
constexpr std::uint16_t version = 2;
constexpr std::uint32_t partial_bytes_max = 1 << 20;

template <class Row>
std::byte* put_rows(std::byte* at, const std::vector<Row>& rows) {
  if (!rows.empty()) std::memcpy(at, rows.data(), rows.size() * sizeof(Row));
  return at + rows.size() * sizeof(Row);
}

std::byte* put_padded(std::byte* at, Bytes bytes) {
  if (!bytes.empty()) std::memcpy(at, bytes.data(), bytes.size());
  const std::uint64_t padded = align_up(bytes.size(), 8);
  std::memset(at + bytes.size(), 0, padded - bytes.size());
  return at + padded;
}

}  // namespace

void ParcelWriter::begin(const ParcelHeader& header) {
  header_ = header;
  entries_.clear();
  records_.clear();
  partials_.clear();
  partial_bytes_.clear();
  ballots_.clear();
  grants_.clear();
}

void ParcelWriter::add_entry(const EntryRow& row, const Record& record) {
  OFP_ASSERT(row.length == no_value ? record.bytes.empty() : row.length == record.bytes.size());
  entries_.push_back(row);
  records_.push_back(record);
}

void ParcelWriter::add_partial(NodeIndex node, std::uint64_t epoch, Bytes bytes) {
  OFP_ASSERT(bytes.size() <= partial_bytes_max);
  partials_.push_back({node, static_cast<std::uint32_t>(bytes.size()), epoch});
  partial_bytes_.push_back(bytes);
}

SharedBytes ParcelWriter::finish() {
  header_.magic = magic;
  header_.version = version;
  header_.entries = static_cast<std::uint32_t>(entries_.size());
  header_.partials = static_cast<std::uint32_t>(partials_.size());
  header_.ballots = static_cast<std::uint32_t>(ballots_.size());
  header_.grants = static_cast<std::uint32_t>(grants_.size());
  std::uint64_t size = sizeof header_ + entries_.size() * sizeof(EntryRow) + partials_.size() * sizeof(PartialRow) +
                       ballots_.size() * sizeof(Ballot) + grants_.size() * sizeof(Grant);
  for (const Record& each : records_) size += align_up(each.bytes.size(), 8);
  for (const Bytes each : partial_bytes_) size += align_up(each.size(), 8);
  auto bytes = std::make_shared<std::vector<std::byte>>(size);
  std::byte* at = bytes->data();
  store(at, header_);
  at = put_rows(at + sizeof header_, entries_);
  at = put_rows(at, partials_);
  at = put_rows(at, ballots_);
  at = put_rows(at, grants_);
  for (const Record& each : records_) at = put_padded(at, each.bytes);
  for (const Bytes each : partial_bytes_) at = put_padded(at, each);
  OFP_ASSERT(at == bytes->data() + size);
  records_.clear();  // they are copied, so their owners can be released
  return bytes;
}

Result<Parcel> Parcel::open(SharedBytes bytes) {
  Parcel parcel;
  const std::uint64_t size = bytes->size();
  if (size < sizeof(ParcelHeader))
    return fail(Error::protocol, "a parcel of {} bytes, but its header alone has {}", size, sizeof(ParcelHeader));
  const auto header = load<ParcelHeader>(bytes->data());
  if (header.magic != magic)
    return fail(Error::protocol, "a parcel begins with {:#x}, expected {:#x}", header.magic, magic);
  if (header.version != version)
    return fail(Error::version, "a parcel of version {}, expected {}", header.version, version);
  if (header.kind < ParcelKind::up || header.kind > ParcelKind::alive)
    return fail(Error::protocol, "a parcel of kind {}", static_cast<unsigned>(header.kind));
  if (header.round_age_ns < 0)
    return fail(Error::protocol, "a parcel of a round that is {} ns old", header.round_age_ns);
  for (const std::uint32_t count : {header.entries, header.partials, header.ballots, header.grants})
    if (count > 2 * exchange_members_max) return fail(Error::protocol, "a parcel has {} rows", count);
  // Sums of bounded numbers: none of them overflows.
  parcel.entries_at_ = sizeof header;
  parcel.partials_at_ = parcel.entries_at_ + header.entries * sizeof(EntryRow);
  parcel.ballots_at_ = parcel.partials_at_ + header.partials * sizeof(PartialRow);
  parcel.grants_at_ = parcel.ballots_at_ + header.ballots * sizeof(Ballot);
  parcel.bytes_at_ = parcel.grants_at_ + header.grants * sizeof(Grant);
  if (parcel.bytes_at_ > size)
    return fail(Error::protocol, "a parcel's tables end at {} of {} bytes", parcel.bytes_at_, size);
  parcel.bytes_ = std::move(bytes);
  parcel.header_ = header;
  std::uint64_t at = parcel.bytes_at_;
  for (std::uint32_t i = 0; i < header.entries; ++i) {
    const EntryRow row = parcel.entry(i);
    if (row.length != no_value && row.length > record_bytes_max)
      return fail(Error::protocol, "a record of {} bytes, at most {} are allowed", row.length, record_bytes_max);
    if (row.age_ns < 0) return fail(Error::protocol, "a record that is {} ns old", row.age_ns);
    at += row.length == no_value ? 0 : align_up(row.length, 8);
  }
  parcel.partial_bytes_at_ = at;
  for (std::uint32_t i = 0; i < header.partials; ++i) {
    const PartialRow row = parcel.partial(i);
    if (row.length > partial_bytes_max) return fail(Error::protocol, "partial reductions of {} bytes", row.length);
    at += align_up(row.length, 8);
  }
  if (at != size) return fail(Error::protocol, "a parcel of {} bytes should have {} according to its tables", size, at);
  return parcel;
}

std::uint64_t parcel_bytes_max(std::uint64_t members, std::uint64_t record_bytes,
                               std::uint64_t partial_bytes) noexcept {
  return sizeof(ParcelHeader) +
         members * (sizeof(EntryRow) + sizeof(Ballot) + sizeof(Grant) + align_up(record_bytes, 8)) +
         sizeof(PartialRow) + align_up(partial_bytes, 8);
}

}  // namespace offpath::exchange
