#include "sift/tracks/dataset_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <utility>

namespace offpath::sift {

namespace {

constexpr std::string_view file_prefix = "part-", file_suffix = ".parquet";

bool is_file_of_tracks(std::string_view name) { return name.starts_with(file_prefix) && name.ends_with(file_suffix); }

// Other characters than these have their number instead, so that names differ if members do.
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
      member_(as_file_name(writer_.member)) {}

Result<DatasetDirectory> DatasetDirectory::open(const std::string& path, Writer writer, bool replace) {
  if (!path.starts_with('/')) return fail(Error::invalid, "the directory \"{}\" is no absolute path", path);
  if (mkdir(path.c_str(), 0777) != 0 && errno != EEXIST)
    return fail_errno(errno, fmt::format("making the directory {}", path));
  Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return fail_errno(errno, fmt::format("opening the directory {}", path));
  struct stat status{};
  if (fstat(fd.get(), &status) != 0) return fail_errno(errno, "fstat " + path);
  if (status.st_uid != geteuid())
    return fail(Error::denied, "directory {} belongs to user {}, and this agent runs as user {}", path, status.st_uid,
                geteuid());
  DatasetDirectory directory(path, std::move(fd), std::move(writer));
  OFP_ASSIGN(const std::vector<std::string> names, directory.names());
  for (const std::string& name : names) {
    if (directory.is_left_over(name)) unlinkat(directory.directory_.get(), name.c_str(), 0);
    if (name.starts_with('.') || name.starts_with('_')) continue;  // readers of data sets pass over them
    if (replace && is_file_of_tracks(name)) continue;
    if (replace)
      return fail(Error::exists, "directory {} has the file {}, which no write of tracks has made", path, name);
    return fail(Error::exists, "directory {} has files already, {} among them: name another one, or replace them", path,
                name);
  }
  return directory;
}

Result<std::vector<std::string>> DatasetDirectory::names() const {
  Fd again(openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!again) return fail_errno(errno, "opening " + path_);
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(fdopendir(again.get()), closedir);
  if (listing == nullptr) return fail_errno(errno, "fdopendir of " + path_);
  (void)again.release();  // the listing's
  std::vector<std::string> names;
  errno = 0;
  for (const dirent* entry = readdir(listing.get()); entry != nullptr; errno = 0, entry = readdir(listing.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return fail_errno(errno, "reading " + path_);
  return names;
}

std::string DatasetDirectory::final_name(std::size_t file) const {
  return fmt::format("{}{}-{:04}{}", file_prefix, member_, file, file_suffix);
}

std::string DatasetDirectory::unfinished_name(std::size_t file) const {
  return fmt::format(".{}.{:016x}.{:x}", final_name(file), writer_.process, writer_.number);
}

// An unfinished file of this member, made by another process.
bool DatasetDirectory::is_left_over(std::string_view name) const {
  const std::string own = fmt::format(".{}{}-", file_prefix, member_);
  if (!name.starts_with(own)) return false;
  name.remove_prefix(own.size());
  name.remove_prefix(std::min(name.find_first_not_of("0123456789"), name.size()));
  return name.starts_with(fmt::format("{}.", file_suffix)) &&
         !name.starts_with(fmt::format("{}.{:016x}.", file_suffix, writer_.process));
}

Result<Fd> DatasetDirectory::begin_file() {
  const std::string name = unfinished_name(files_.size());
  Fd fd(openat(directory_.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!fd) return fail_errno(errno, fmt::format("making the file {}/{}", path_, name));
  files_.push_back(false);
  return fd;
}

Status DatasetDirectory::publish(bool clear) {
  if (clear) {
    OFP_ASSIGN(const std::vector<std::string> names, this->names());
    for (const std::string& name : names)
      if (is_file_of_tracks(name) && unlinkat(directory_.get(), name.c_str(), 0) != 0 && errno != ENOENT)
        return fail_errno(errno, fmt::format("removing {}/{}", path_, name));
  }
  for (std::size_t file = 0; file < files_.size(); ++file) {
    const std::string from = unfinished_name(file), to = final_name(file);
    const int at = directory_.get();
    // A file of the name is that of another write, which began before this one had named its own.
    if (renameat2(at, from.c_str(), at, to.c_str(), RENAME_NOREPLACE) != 0 &&
        (errno != EINVAL || renameat(at, from.c_str(), at, to.c_str()) != 0))
      return fail_errno(errno, fmt::format("naming {}/{}", path_, to));
    files_[file] = true;
  }
  if (fsync(directory_.get()) != 0) return fail_errno(errno, "fsync of " + path_);
  return {};
}

void DatasetDirectory::abandon() {
  for (std::size_t file = 0; file < files_.size(); ++file)
    unlinkat(directory_.get(), (files_[file] ? final_name(file) : unfinished_name(file)).c_str(), 0);
  files_.clear();
}

}  // namespace offpath::sift
