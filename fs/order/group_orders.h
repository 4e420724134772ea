// The orders of eviction of all groups (name_record.h): one OrderIndex a group, over the same names.
//
// Not thread safe.
#pragma once

#include <cstddef>
#include <vector>

#include "fs/order/order_index.h"

namespace kvcachefs::order {

class GroupOrders {
 public:
  explicit GroupOrders(NameTable& names) : names_(names), orders_(kGroups, OrderIndex(names)) {}

  // As OrderIndex, in the order of the name's group.
  void insert(NameIndex index) { of_name(index).insert(index); }
  void remove(NameIndex index) noexcept { of_name(index).remove(index); }
  // Of a name that is stored, or not yet.
  void set_group(NameIndex index, Group group) {
    NameRecord& record = names_[index];
    if (record.group == group) return;
    if (record.stored == 1) remove(index);
    record.group = group & (kGroups - 1);
    if (record.stored == 1) insert(index);
  }

  OrderIndex& of(Group group) noexcept { return orders_[group % kGroups]; }
  [[nodiscard]] std::size_t size() const noexcept {
    std::size_t size = 0;
    for (const OrderIndex& order : orders_) size += order.size();
    return size;
  }
  [[nodiscard]] std::size_t memory_bytes() const noexcept {
    std::size_t bytes = orders_.capacity() * sizeof(OrderIndex);
    for (const OrderIndex& order : orders_) bytes += order.memory_bytes();
    return bytes;
  }

 private:
  OrderIndex& of_name(NameIndex index) noexcept { return orders_[names_[index].group]; }

  NameTable& names_;
  std::vector<OrderIndex> orders_;
};

}  // namespace kvcachefs::order
