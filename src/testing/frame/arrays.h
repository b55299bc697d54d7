// ArrowArray trees for tests, owned by one Arrays object.
#pragma once

#include <deque>
#include <initializer_list>
#include <vector>

#include "frame/c_data.h"

namespace offpath::frame {

class Arrays {
 public:
  struct Shape {
    std::int64_t length = 0;
    std::int64_t null_count = 0;
    std::int64_t offset = 0;
  };

  ArrowArray* add(Shape shape, std::vector<const void*> buffers, std::vector<ArrowArray*> children = {},
                  ArrowArray* dictionary = nullptr) {
    std::vector<const void*>& kept = buffers_.emplace_back(std::move(buffers));
    std::vector<ArrowArray*>& pointers = children_.emplace_back(std::move(children));
    ArrowArray& array = arrays_.emplace_back();
    array = {};
    array.length = shape.length;
    array.null_count = shape.null_count;
    array.offset = shape.offset;
    array.n_buffers = static_cast<std::int64_t>(kept.size());
    array.buffers = kept.data();
    array.n_children = static_cast<std::int64_t>(pointers.size());
    array.children = pointers.data();
    array.dictionary = dictionary;
    array.release = [](ArrowArray* released) { released->release = nullptr; };
    return &array;
  }

  // A record batch of these columns.
  ArrowArray* batch(std::int64_t rows, std::vector<ArrowArray*> columns, std::int64_t offset = 0) {
    return add({rows, 0, offset}, {nullptr}, std::move(columns));
  }

 private:
  std::deque<ArrowArray> arrays_;
  std::deque<std::vector<const void*>> buffers_;
  std::deque<std::vector<ArrowArray*>> children_;
};

}  // namespace offpath::frame
