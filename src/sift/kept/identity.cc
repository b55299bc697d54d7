#include "sift/kept/identity.h"

#include <cstring>

#include "pool/directory/placement.h"
#include "pool/directory/pool_name.h"
#include "wire/cursor.h"

namespace offpath::sift {

FramePtr identity_object(std::uint64_t incarnation, uid_t user, std::string_view text, const FrameMemory& memory) {
  std::vector<std::byte> bytes;
  wire::Writer writer(bytes);
  writer.put(incarnation);
  writer.put(std::uint64_t{user});
  writer.put_text(text);
  auto object = std::make_shared<service::Frame>();
  auto buffer = memory.cache->take(bytes.size(), memory.user);
  if (!buffer) return nullptr;
  object->buffer = std::move(*buffer);
  object->bytes = bytes.size();
  std::memcpy(object->buffer.data(), bytes.data(), bytes.size());
  return object;
}

Result<Identity> read_identity(const Result<FramePtr>& object, uid_t user) {
  OFP_TRY(object);
  const Bytes bytes((*object)->buffer.data(), (*object)->bytes);
  wire::Reader reader(bytes);
  Identity identity{reader.take<std::uint64_t>(), reader.take<std::uint64_t>(), {}};
  identity.text = reader.take_text();
  if (!reader.done()) return fail(Error::protocol, "{} bytes that do not name a sift pool", bytes.size());
  if (identity.user != user)
    return fail(Error::denied, "it names user {}, but belongs to user {}", identity.user, user);
  return identity;
}

namespace {

constexpr std::string_view passing_mark = "passing-";

}  // namespace

std::string own_name(const Settings& settings, std::string_view text, uid_t user) {
  return fmt::format("{}:{}{}{}{:08x}", settings.replicas > 1 ? "hash" : "local", settings.pool, pool::kept_mark,
                     settings.spill_on ? passing_mark : "",
                     pool::hash_of(fmt::format("{} {}", user, text)) & 0xFFFF'FFFF);
}

bool is_passing(std::string_view own) noexcept {
  const std::size_t mark = own.find(pool::kept_mark);
  return mark != std::string_view::npos &&
         own.substr(mark + std::string_view(pool::kept_mark).size()).starts_with(passing_mark);
}

bool may_keep(std::string_view own, std::string_view text) {
  constexpr std::string_view scheme = "sift";
  const std::string_view name = own.substr(own.find(':')), said = name_in(text);  // perhaps of another scheme
  return said.starts_with(scheme) && said.substr(scheme.size()) == name.substr(0, name.find(pool::kept_mark));
}

}  // namespace offpath::sift
