//! What nobody else implements: a launch that is safe to make rests on it.

/// See the module.
pub trait Sealed {}

macro_rules! tuples {
    ($($part:ident)+) => {
        impl<$($part: Sealed),+> Sealed for ($($part,)+) {}
    };
}

tuples!(A);
tuples!(A B);
tuples!(A B C);
tuples!(A B C D);
tuples!(A B C D E);
tuples!(A B C D E F);
tuples!(A B C D E F G);
tuples!(A B C D E F G H);
tuples!(A B C D E F G H I);
tuples!(A B C D E F G H I J);
tuples!(A B C D E F G H I J K);
tuples!(A B C D E F G H I J K L);
