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
    return fail(Error::denied, "its bytes name user {}, but it belongs to user {}", identity.user, user);
  return identity;
}

std::string own_name(const Settings& settings, std::string_view text, uid_t user) {
  return fmt::format("{}:{}{}{:08x}", settings.replicas > 1 ? "hash" : "local", settings.pool, pool::kept_mark,
                     pool::hash_of(fmt::format("{} {}", user, text)) & 0xFFFF'FFFF);
}

bool may_keep(std::string_view own, std::string_view text) {
  const std::string_view name = own.substr(own.find(':'));
  return name_in(text).substr(std::string_view("sift").size()) == name.substr(0, name.find(pool::kept_mark));
}

}  // namespace offpath::sift
