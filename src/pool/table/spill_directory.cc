#include "pool/table/spill_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <optional>

#include "base/files/directory_entries.h"
#include "base/files/file_bytes.h"
#include "base/files/own_directory.h"
#include "base/log.h"

namespace offpath::pool {

namespace {

constexpr std::uint64_t piece_bytes = 1 << 20;  // read and checked while it is in the processor's cache
constexpr std::size_t digits = 16;
constexpr int tries_again = 2;  // of a read that failed

std::string name_of(const ObjectRecord& record, bool hidden) {
  return fmt::format("{:016x}{}{}", record.number, hidden ? ".hidden" : "", record.arrow ? ".arrow" : ".bytes");
}

struct ParsedName {
  std::uint64_t number;
  bool hidden, arrow;
};

std::optional<ParsedName> parse_name(std::string_view name) {
  if (name.size() < digits) return std::nullopt;
  ParsedName parsed{0, false, false};
  const auto [rest, error] = std::from_chars(name.data(), name.data() + digits, parsed.number, 16);
  if (error != std::errc() || rest != name.data() + digits) return std::nullopt;
  name.remove_prefix(digits);
  parsed.hidden = name.starts_with(".hidden");
  if (parsed.hidden) name.remove_prefix(std::string_view(".hidden").size());
  parsed.arrow = name == ".arrow";
  if (!parsed.arrow && name != ".bytes") return std::nullopt;
  return parsed;
}

// The directory must be the agent's alone: a user who could put a file there could put an object into any pool.
Result<Fd> open_directory(const std::string& path) {
  OFP_ASSIGN(Fd fd, open_own_directory(path, 0700, Links::refuse));
  struct stat status{};
  if (fstat(fd.get(), &status) != 0) return fail_errno(errno, "fstat " + path);
  if ((status.st_mode & 077) != 0)
    return fail(Error::denied, "directory {} is open to others (mode {:o}): chmod 700", path, status.st_mode & 07777);
  return fd;
}

}  // namespace

Result<std::unique_ptr<SpillDirectory>> SpillDirectory::open(const std::string& path) {
  OFP_ASSIGN(Fd directory, open_directory(path));
  Fd lock(openat(directory.get(), "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!lock) return fail_errno(errno, fmt::format("opening {}/lock", path));
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return fail(Error::exists, "another agent uses the directory {}", path);
    return fail_errno(errno, fmt::format("locking {}/lock", path));
  }
  return std::unique_ptr<SpillDirectory>(new SpillDirectory(path, std::move(directory), std::move(lock)));
}

// ---- writing

Status SpillDirectory::write_file(const std::string& name, const ObjectRecord& record, Bytes object,
                                  bool lasting) const {
  const Fd fd(openat(directory_.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return fail_errno(errno, "open");
  const std::vector<std::byte> end = encode_end(record);
  // Detects a full disk before writing, if the file system reports its free space.
  if (fallocate(fd.get(), 0, 0, static_cast<off_t>(object.size() + end.size())) != 0 && errno != EOPNOTSUPP &&
      errno != ENOSYS)
    return fail_errno(errno, "fallocate");
  OFP_TRY(write_all(fd.get(), object, 0));
  OFP_TRY(write_all(fd.get(), end, object.size()));
  if (lasting && fdatasync(fd.get()) != 0) return fail_errno(errno, "fdatasync");
  return {};
}

Status SpillDirectory::sync_names() const {
  if (fsync(directory_.get()) != 0) return fail_errno(errno, "fsync of " + path_);
  return {};
}

Result<RecordPtr> SpillDirectory::write(ObjectRecord record, Bytes object, bool lasting) {
  OFP_ASSERT(record.bytes == object.size());
  record.crc32c = crc32c(object);
  const std::string name = name_of(record, record.hidden), part = name + ".part";
  Status written = write_file(part, record, object, lasting);
  if (written && renameat(directory_.get(), part.c_str(), directory_.get(), name.c_str()) != 0)
    written = fail_errno(errno, "rename");
  if (!written) {
    unlinkat(directory_.get(), part.c_str(), 0);
    return fail(written.error().code, "{}/{}, {} bytes for {}: {}", path_, name, record.bytes, record.described(),
                written.error().message);
  }
  if (lasting)
    if (Status synced = sync_names(); !synced) {
      unlinkat(directory_.get(), name.c_str(), 0);
      return tl::unexpected(std::move(synced).error());
    }
  return std::make_shared<const ObjectRecord>(std::move(record));
}

Status SpillDirectory::show(const ObjectRecord& record) {
  if (renameat(directory_.get(), name_of(record, true).c_str(), directory_.get(), name_of(record, false).c_str()) !=
          0 &&
      errno != ENOENT)
    return fail_errno(errno, fmt::format("renaming {}/{}", path_, name_of(record, true)));
  return sync_names();
}

Status SpillDirectory::remove(const ObjectRecord& record) {
  for (const bool hidden : {false, true})
    if (unlinkat(directory_.get(), name_of(record, hidden).c_str(), 0) != 0 && errno != ENOENT)
      return fail_errno(errno, fmt::format("removing {}/{}", path_, name_of(record, hidden)));
  return {};
}

std::string SpillDirectory::described(const ObjectRecord& record) const {
  return fmt::format("{}/{}", path_, name_of(record, false));
}

// ---- reading

// It may be renamed at this moment, so both names are tried.
Result<Fd> SpillDirectory::open_file(const ObjectRecord& record, std::string& name) const {
  for (const bool hidden : {true, false}) {
    name = name_of(record, hidden);
    Fd fd(openat(directory_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    if (fd) return fd;
    if (errno != ENOENT) return fail_errno(errno, fmt::format("opening {}/{}", path_, name));
  }
  return fail(Error::protocol, "{}: its file {}/{} is gone", record.described(), path_, name);
}

Status SpillDirectory::read(const ObjectRecord& record, MutableBytes into) {
  OFP_ASSERT(into.size() == record.bytes);
  std::string name;
  OFP_ASSIGN(const Fd fd, open_file(record, name));
  std::uint32_t crc = 0;
  Status done;
  for (std::uint64_t at = 0; at < into.size() && done; at += piece_bytes) {
    const MutableBytes piece = into.subspan(at, std::min<std::uint64_t>(piece_bytes, into.size() - at));
    done = read_all(fd.get(), piece, at);
    crc = crc32c(piece, crc);
  }
  if (done && crc != record.crc32c)
    done = fail(Error::protocol, "the checksum of its {} bytes is {:08x}, {:08x} was written", record.bytes, crc,
                record.crc32c);
  if (done) return {};
  if (done.error().code != Error::protocol)
    return fail(done.error().code, "{}: file {}/{}: {}", record.described(), path_, name, done.error().message);
  set_aside(name, done.error().message);
  return fail(Error::protocol, "{} is lost here: file {}/{} is corrupt: {}", record.described(), path_, name,
              done.error().message);
}

Status SpillDirectory::read_part(const ObjectRecord& record, std::uint64_t offset, MutableBytes into) {
  OFP_ASSERT(offset <= record.bytes && into.size() <= record.bytes - offset);
  std::string name;
  OFP_ASSIGN(const Fd fd, open_file(record, name));
  if (Status done = read_all(fd.get(), into, offset); !done)
    return fail(done.error().code, "{}: file {}/{}: {}", record.described(), path_, name, done.error().message);
  return {};
}

void SpillDirectory::set_aside(const std::string& name, const std::string& why) const {
  const bool aside = renameat(directory_.get(), name.c_str(), directory_.get(), (name + ".corrupt").c_str()) == 0;
  log(LogLevel::error, "{}/{} is corrupt{}: {}", path_, name,
      aside ? ", and was set aside under the name .corrupt" : "", why);
}

Result<ObjectRecord> SpillDirectory::read_record(const std::string& name) const {
  // Non-blocking: the entry may not be a regular file.
  const Fd fd(openat(directory_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd) return fail_errno(errno, "open");
  struct stat status{};
  if (fstat(fd.get(), &status) != 0) return fail_errno(errno, "fstat");
  if (!S_ISREG(status.st_mode)) return fail(Error::protocol, "it is not a regular file");
  const auto file_bytes = static_cast<std::uint64_t>(status.st_size);
  std::array<std::byte, object_end_bytes_max> room;
  const MutableBytes last = MutableBytes(room).first(std::min<std::uint64_t>(file_bytes, room.size()));
  OFP_TRY(read_all(fd.get(), last, file_bytes - last.size()));
  OFP_ASSIGN(ObjectRecord record, decode_end(last, file_bytes));
  const ParsedName named = parse_name(name).value();
  if (record.number != named.number || record.arrow != named.arrow)
    return fail(Error::protocol, "its record is of file {}", name_of(record, named.hidden));
  record.hidden = named.hidden;
  return record;
}

Result<std::vector<RecordPtr>> SpillDirectory::scan() {
  OFP_ASSIGN(const std::vector<std::string> names, directory_entries(directory_.get(), path_));
  std::vector<RecordPtr> all;
  for (const std::string& name : names) {
    if (name.ends_with(".part")) unlinkat(directory_.get(), name.c_str(), 0);
    if (!parse_name(name)) continue;
    largest_number_ = std::max(largest_number_, parse_name(name)->number);
    auto record = read_record(name);
    for (int tries = 0; tries < tries_again && !record && record.error().code == Error::io; ++tries)
      record = read_record(name);
    if (record)
      all.push_back(std::make_shared<const ObjectRecord>(std::move(*record)));
    else if (record.error().code == Error::protocol)
      set_aside(name, record.error().message);
    else if (record.error().code == Error::io)
      log(LogLevel::error,
          "{}/{} cannot be read: {}; the file is kept, and its object is missing until a start at which it can be read",
          path_, name, record.error().message);
    else
      return fail(record.error().code, "{}/{}: {}", path_, name, record.error().message);
  }
  std::ranges::sort(all, {}, [](const RecordPtr& record) { return record->number; });
  return all;
}

}  // namespace offpath::pool
