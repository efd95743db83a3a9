//! Classes of segments, by the temperature of their blocks.

/// The first number of a survivors' class. It is fixed, so that numbers on the device keep their
/// meaning when the number of users' classes changes.
const SURVIVORS_FROM: u8 = 32;

/// What a segment was filled with: the main log, or blocks of one temperature.
///
/// | number | class                                          |
/// |-------:|------------------------------------------------|
/// |      0 | the main log: records, and blocks of no other class |
/// |  1..32 | blocks that clients wrote, hottest first       |
/// |    32… | blocks that survived cleaning, youngest first  |
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Class(u8);

impl Class {
    /// The main log.
    pub const MAIN: Self = Self(0);

    /// The users' class number `index`, from 0, the hottest.
    ///
    /// # Panics
    /// When `index` is 31 or more.
    #[must_use]
    pub const fn user(index: u8) -> Self {
        assert!(index < SURVIVORS_FROM - 1, "users' classes end where survivors' begin");
        Self(1 + index)
    }

    /// The survivors' class number `index`, from 0, the youngest.
    ///
    /// # Panics
    /// When `index` is 224 or more.
    #[must_use]
    pub const fn survivor(index: u8) -> Self {
        assert!(index <= u8::MAX - SURVIVORS_FROM, "a class is a byte");
        Self(SURVIVORS_FROM + index)
    }

    /// The class with this number on the device. Every byte is one.
    #[must_use]
    pub const fn from_number(number: u8) -> Self {
        Self(number)
    }

    /// Its number on the device.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Which of the users' classes it is, from 0; `None` if it is none of them.
    #[must_use]
    pub const fn user_index(self) -> Option<u8> {
        if self.0 >= 1 && self.0 < SURVIVORS_FROM { Some(self.0 - 1) } else { None }
    }

    /// Which of the survivors' classes it is, from 0; `None` if it is none of them.
    #[must_use]
    pub const fn survivor_index(self) -> Option<u8> {
        if self.0 >= SURVIVORS_FROM { Some(self.0 - SURVIVORS_FROM) } else { None }
    }
}

impl std::fmt::Display for Class {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.user_index(), self.survivor_index()) {
            (Some(index), _) => write!(f, "user {index}"),
            (_, Some(index)) => write!(f, "survivor {index}"),
            _ => f.write_str("main"),
        }
    }
}

/// How many classes are in use beyond the main log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Classes {
    /// Classes of what clients write.
    pub users: u8,
    /// Classes of what survives cleaning.
    pub survivors: u8,
}

impl Classes {
    /// Everything goes to the main log.
    pub const NONE: Self = Self { users: 0, survivors: 0 };

    /// How many there are in all: the segments that can be open beyond the main log's.
    #[must_use]
    pub const fn count(self) -> usize {
        self.users as usize + self.survivors as usize
    }

    /// All of them, users' before survivors'.
    pub fn iter(self) -> impl Iterator<Item = Class> {
        (0..self.users).map(Class::user).chain((0..self.survivors).map(Class::survivor))
    }

    /// The index of `class` in [`iter`](Self::iter); `None` for the main log and for a class that
    /// is not in use.
    #[must_use]
    pub fn position(self, class: Class) -> Option<usize> {
        if let Some(index) = class.user_index() {
            return (index < self.users).then_some(usize::from(index));
        }
        let index = class.survivor_index()?;
        (index < self.survivors).then_some(usize::from(self.users) + usize::from(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_named_by_its_number() {
        for number in 0..=u8::MAX {
            let class = Class::from_number(number);
            assert_eq!(class.number(), number);
            let named = match (class.user_index(), class.survivor_index()) {
                (Some(index), None) => Class::user(index),
                (None, Some(index)) => Class::survivor(index),
                (None, None) => Class::MAIN,
                (Some(_), Some(_)) => panic!("{class} is of both kinds"),
            };
            assert_eq!(named, class);
        }
        assert_eq!(Class::survivor(0).number(), 32, "it is on devices");
    }

    #[test]
    fn classes_in_use_stand_in_the_order_of_their_positions() {
        let classes = Classes { users: 3, survivors: 2 };
        let all: Vec<_> = classes.iter().collect();
        assert_eq!(all.len(), classes.count());
        for (at, class) in all.into_iter().enumerate() {
            assert_eq!(classes.position(class), Some(at));
        }
        assert_eq!(classes.position(Class::MAIN), None);
        assert_eq!(classes.position(Class::user(3)), None);
        assert_eq!(classes.position(Class::survivor(2)), None);
    }
}
