#include "pool/table/object_index.h"

#include <algorithm>

#include "pool/directory/glob.h"

namespace offpath::pool {

namespace {

constexpr std::size_t item_bytes = 29;  // of a listed object, without its keys

}  // namespace

// ---- pools

Result<ObjectIndex::Pool*> ObjectIndex::open(const std::string& name, uid_t user, Access access) {
  auto [at, fresh] = pools_.try_emplace(name);
  Pool& pool = at->second;
  if (fresh) {
    pool.name = at->first;
    pool.user = user;
    ++pools_of_users_[user];
  }
  OFP_TRY(may_use(pool, user, access));
  return &pool;
}

Status ObjectIndex::may_read_as(const Pool& pool, uid_t user, Access access) {
  if (access == Access::read && std::ranges::find(pool.options.readers, user) != pool.options.readers.end()) return {};
  return fail(Error::denied, "pool \"{}\" belongs to user {}, not to user {}{}", pool.name, pool.user, user,
              access == Access::read ? ", who is not among its readers" : "");
}

Result<const ObjectIndex::Pool*> ObjectIndex::existing(std::string_view name, uid_t user, Access access) const {
  const Pool* const pool = find(name);
  if (pool == nullptr) return fail(Error::not_found, "there is no pool \"{}\"", name);
  OFP_TRY(may_use(*pool, user, access));
  return pool;
}

Result<ObjectIndex::Pool*> ObjectIndex::existing(std::string_view name, uid_t user, Access access) {
  Pool* const pool = find(name);
  if (pool == nullptr) return fail(Error::not_found, "there is no pool \"{}\"", name);
  OFP_TRY(may_use(*pool, user, access));
  return pool;
}

std::size_t ObjectIndex::pools_of(uid_t user) const {
  const auto count = pools_of_users_.find(user);
  return count == pools_of_users_.end() ? 0 : count->second;
}

void ObjectIndex::forget(const std::string& name) {
  const auto at = pools_.find(name);
  if (at == pools_.end()) return;
  OFP_ASSERT(at->second.objects.empty());
  const auto count = pools_of_users_.find(at->second.user);
  if (--count->second == 0) pools_of_users_.erase(count);
  pools_.erase(at);
}

// ---- objects

ObjectIndex::Objects::iterator ObjectIndex::add(Pool& pool, Objects::iterator before, Keys&& keys, Object&& object) {
  pool.bytes += object.frame->bytes;
  bytes_ += object.frame->bytes;
  ++frames_;
  key_bytes_ += bytes_of(keys);
  return pool.objects.emplace_hint(before, std::move(keys), std::move(object));
}

ObjectIndex::Keys ObjectIndex::remove(Pool& pool, Objects::iterator at) {
  note_freed(pool);
  pool.bytes -= at->second.frame->bytes;
  bytes_ -= at->second.frame->bytes;
  key_bytes_ -= bytes_of(at->first);
  --frames_;
  if (!at->second.hidden) pool.by_sequence.erase(at->second.sequence);
  return std::move(pool.objects.extract(at).key());
}

void ObjectIndex::show(Pool& pool, Objects::iterator at) {
  at->second.hidden = false;
  at->second.sequence = next_sequence_++;
  pool.by_sequence.emplace_hint(pool.by_sequence.end(), at->second.sequence, at);
}

const ObjectIndex::Objects::value_type* ObjectIndex::find(const std::string& name, const KeysView& keys) const {
  const Pool* const pool = find(name);
  if (pool == nullptr) return nullptr;
  const auto object = pool->objects.find(keys);
  return object != pool->objects.end() ? &*object : nullptr;
}

ObjectIndex::Object* ObjectIndex::find(const std::string& name, const KeysView& keys) {
  Pool* const pool = find(name);
  if (pool == nullptr) return nullptr;
  const auto object = pool->objects.find(keys);
  return object != pool->objects.end() ? &object->second : nullptr;
}

bool ObjectIndex::holds_row(const std::string& name, std::string_view row) const {
  const Pool* const pool = find(name);
  if (pool == nullptr) return false;
  const auto object = pool->objects.lower_bound(KeysView{row, {}});
  return object != pool->objects.end() && object->first.first == row;
}

std::vector<ObjectIndex::Item> ObjectIndex::list(const Pool& pool, std::string_view row_glob,
                                                 std::string_view column_glob, std::uint64_t after,
                                                 std::size_t bytes_max, bool& more) {
  std::vector<Item> items;
  std::size_t bytes = 0;
  more = false;
  for (auto at = pool.by_sequence.upper_bound(after); at != pool.by_sequence.end() && !more; ++at) {
    const auto& [row, column] = at->second->first;
    if (!glob_matches(row_glob, row) || !glob_matches(column_glob, column)) continue;
    bytes += item_bytes + row.size() + column.size();
    more = bytes > bytes_max && !items.empty();
    if (more) break;
    const Object& object = at->second->second;
    items.push_back({at->first, object.frame->bytes, object.frame->rows, object.frame->arrow, row, column});
  }
  return items;
}

std::vector<QuerySource> ObjectIndex::choose(const Pool& pool, std::string_view row_glob,
                                             std::string_view column_glob) {
  std::vector<QuerySource> chosen;
  for (const auto& [sequence, at] : pool.by_sequence) {
    const auto& [row, column] = at->first;
    if (glob_matches(row_glob, row) && glob_matches(column_glob, column))
      chosen.push_back({at->second.frame, row, column});
  }
  return chosen;
}

void ObjectIndex::note_freed(const Pool& pool) {
  ++freed_;
  if (!freed_pools_.contains(pool.name)) freed_pools_.emplace(pool.name);
}

}  // namespace offpath::pool
