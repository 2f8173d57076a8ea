//! A list of items that are addressed by number, such as requests and commands. Numbers are reused,
//! so a number must not be used after its item was released.

/// Items that are addressed by number. The numbers of released items are reused.
#[derive(Clone, Debug)]
pub(crate) struct Slab<T> {
    items: Vec<T>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub fn new() -> Slab<T> {
        Slab { items: Vec::new(), free: Vec::new() }
    }

    /// Adds an item and returns its number.
    #[inline]
    pub fn insert(&mut self, item: T) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.items[number as usize] = item;
                number
            }
            None => {
                self.items.push(item);
                self.items.len() as u32 - 1
            }
        }
    }

    /// Releases an item, so that its number can be used for another item.
    #[inline]
    pub fn release(&mut self, number: u32) {
        self.free.push(number);
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;
    #[inline]
    fn index(&self, number: u32) -> &T {
        &self.items[number as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut T {
        &mut self.items[number as usize]
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab::new()
    }
}
