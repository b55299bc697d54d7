#include "sift/tracks/dataset_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/files/directory_entries.h"
#include "base/files/own_directory.h"
#include "loop/job_pool.h"

namespace offpath::sift {

namespace {

constexpr std::string_view file_prefix = "part-", file_suffix = ".parquet";
constexpr const char* claim_name = ".offpath-write";

// Other characters are replaced by their number, so that different members have different names.
std::string as_file_name(std::string_view member) {
  std::string name;
  for (const char each : member) {
    const bool plain = (each >= '0' && each <= '9') || (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z') ||
                       each == '.' || each == '_' || each == '-';
    if (plain)
      name += each;
    else
      name += fmt::format("%{:02x}", static_cast<unsigned char>(each));
  }
  return name;
}

}  // namespace

DatasetDirectory::DatasetDirectory(std::string path, Fd directory, Writer writer)
    : path_(std::move(path)),
      directory_(std::move(directory)),
      writer_(std::move(writer)),
      member_(as_file_name(writer_.member)),
      own_(fmt::format("{:016x}.{:x}", writer_.process, writer_.number)) {}

DatasetDirectory::~DatasetDirectory() {
  if (!directory_) return;
  (void)loop::guarded([this]() -> Status {
    published_ ? finish() : abandon();
    return {};
  });
}

Result<DatasetDirectory> DatasetDirectory::open(const std::string& path, Writer writer) {
  if (!path.starts_with('/')) return fail(Error::invalid, "the directory \"{}\" is not an absolute path", path);
  OFP_ASSIGN(Fd fd, open_own_directory(path, 0777, Links::follow));
  DatasetDirectory directory(path, std::move(fd), std::move(writer));
  OFP_TRY(directory.claim());
  OFP_ASSIGN(const std::vector<std::string> names, directory.names());
  for (const std::string& name : names) {
    if (directory.is_left_over(name)) unlinkat(directory.directory_.get(), name.c_str(), 0);
    if (name.starts_with('.') || name.starts_with('_')) continue;  // readers of data sets pass over them
    return fail(Error::exists, "directory {} has files already, such as {}: name another one", path, name);
  }
  return directory;
}

// ---- claims

std::string DatasetDirectory::claimed_by() const {
  char text[64];
  const ssize_t bytes = readlinkat(directory_.get(), claim_name, text, sizeof text);
  if (bytes >= 0) return {text, static_cast<std::size_t>(bytes)};
  return errno == ENOENT ? std::string() : std::string("unknown");
}

// By the clock of the file system, which other machines share.
Result<bool> DatasetDirectory::is_stale() const {
  struct stat directory{}, claim{};
  if (futimens(directory_.get(), nullptr) != 0 || fstat(directory_.get(), &directory) != 0)
    return fail_errno(errno, "the time of " + path_);
  if (fstatat(directory_.get(), claim_name, &claim, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT;
  return directory.st_mtim.tv_sec - claim.st_mtim.tv_sec > claim_stale_s;
}

// If two writes replace a stale claim at once, `confirm` fails in one.
Status DatasetDirectory::claim() {
  for (int tries = 0; tries < 3; ++tries) {
    if (symlinkat(own_.c_str(), directory_.get(), claim_name) == 0) return {};
    if (errno == EPERM || errno == EOPNOTSUPP)
      return fail(Error::unsupported, "directory {} is on a file system without symbolic links", path_);
    if (errno != EEXIST) return fail_errno(errno, fmt::format("making the file {}/{}", path_, claim_name));
    if (claimed_by() == own_) return {};
    OFP_ASSIGN(const bool stale, is_stale());
    if (!stale) break;
    unlinkat(directory_.get(), claim_name, 0);
  }
  return fail(Error::exists, "another write of tracks has directory {}: its file {} says {}", path_, claim_name,
              claimed_by());
}

// The first member that fails removes the claim and reports its reason, before another one could report the missing
// claim.
Status DatasetDirectory::confirm() const {
  std::string holder = claimed_by();
  if (holder.empty() && symlinkat(own_.c_str(), directory_.get(), claim_name) == 0) return {};
  if (holder.empty()) holder = claimed_by();
  if (holder != own_)
    return fail(Error::exists, "this write of tracks no longer has directory {}: its file {} says {}", path_,
                claim_name, holder);
  if (utimensat(directory_.get(), claim_name, nullptr, AT_SYMLINK_NOFOLLOW) != 0)
    return fail_errno(errno, fmt::format("marking {}/{}", path_, claim_name));
  return {};
}

void DatasetDirectory::finish() {
  if (claimed_by() == own_) unlinkat(directory_.get(), claim_name, 0);
}

// ---- files

Result<std::vector<std::string>> DatasetDirectory::names() const { return directory_entries(directory_.get(), path_); }

std::string DatasetDirectory::final_name(std::size_t file) const {
  return fmt::format("{}{}-{:04}{}", file_prefix, member_, file, file_suffix);
}

std::string DatasetDirectory::unfinished_name(std::size_t file) const {
  return fmt::format(".{}.{}", final_name(file), own_);
}

// An unfinished file of this member from another write, which does not have the directory any more.
bool DatasetDirectory::is_left_over(std::string_view name) const {
  const std::string own = fmt::format(".{}{}-", file_prefix, member_);
  if (!name.starts_with(own)) return false;
  name.remove_prefix(own.size());
  name.remove_prefix(std::min(name.find_first_not_of("0123456789"), name.size()));
  return name.starts_with(fmt::format("{}.", file_suffix)) && name != fmt::format("{}.{}", file_suffix, own_);
}

Result<Fd> DatasetDirectory::begin_file() {
  const std::string name = unfinished_name(files_.size());
  files_.reserve(files_.size() + 1);  // a file that is made is known
  Fd fd(openat(directory_.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!fd) return fail_errno(errno, fmt::format("making the file {}/{}", path_, name));
  struct stat status{};
  if (fstat(fd.get(), &status) != 0) return fail_errno(errno, fmt::format("fstat of {}/{}", path_, name));
  files_.push_back({status.st_dev, status.st_ino});
  return fd;
}

bool DatasetDirectory::is_file(const std::string& name, const File& file) const {
  struct stat status{};
  return fstatat(directory_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && status.st_dev == file.device &&
         status.st_ino == file.inode;
}

// Replaces no file. A link is refused by every file system if the name is taken, a renaming by some alone; but some
// have no links.
Status DatasetDirectory::give_name(std::size_t file) const {
  const std::string from = unfinished_name(file), to = final_name(file);
  const int at = directory_.get();
  if (linkat(at, from.c_str(), at, to.c_str(), 0) == 0 || (errno == EEXIST && is_file(to, files_[file]))) {
    if (unlinkat(at, from.c_str(), 0) == 0 || errno == ENOENT) return {};
    return fail_errno(errno, fmt::format("removing {}/{}", path_, from));
  }
  const bool has_links = errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS;
  if (!has_links && renameat2(at, from.c_str(), at, to.c_str(), RENAME_NOREPLACE) == 0) return {};
  if (!has_links && (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP))
    return fail(Error::unsupported,
                "directory {} is on a file system that can neither link files nor refuse to replace them", path_);
  return fail_errno(errno, fmt::format("naming {}/{}", path_, to));
}

Status DatasetDirectory::publish() {
  OFP_TRY(confirm());
  for (std::size_t file = 0; file < files_.size(); ++file) OFP_TRY(give_name(file));
  if (fsync(directory_.get()) != 0) return fail_errno(errno, "fsync of " + path_);
  published_ = true;
  return {};
}

void DatasetDirectory::abandon() {
  for (std::size_t file = 0; file < files_.size(); ++file)
    for (const std::string& name : {unfinished_name(file), final_name(file)})
      if (is_file(name, files_[file])) unlinkat(directory_.get(), name.c_str(), 0);
  files_.clear();
  finish();
}

}  // namespace offpath::sift
